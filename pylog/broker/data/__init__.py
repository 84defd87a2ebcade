"""The way of the data through a broker: appended, waited for, fetched by consumers and followers."""
