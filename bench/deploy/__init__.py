"""What `plan` and a `site` without changes cost the control machine as the number of hosts grows."""
