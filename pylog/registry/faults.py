"""What the registry refuses, by the numbers clients know.

Source: Confluent Schema Registry API reference, "Errors"; `io.confluent.kafka.schemaregistry.rest.exceptions.Errors`.
"""

from pylog.errors import PylogError


class RegistryError(PylogError):
    """A request that is answered with an error.

    Attributes:
        code: three digits of an HTTP status, or those and two more.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.code if self.code < 1000 else self.code // 100


def not_logged_in(reason: str) -> RegistryError:
    """Return 401."""
    return RegistryError(401, f"Unauthorized: {reason}")


def too_many_logins() -> RegistryError:
    """Return 429."""
    return RegistryError(429, "Too many wrong logins; wait a minute")


def denied(reason: str) -> RegistryError:
    """Return 40301."""
    return RegistryError(40301, reason)


def no_subject(subject: str) -> RegistryError:
    """Return 40401."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def no_version(version: object) -> RegistryError:
    """Return 40402."""
    return RegistryError(40402, f"Version {version} not found.")


NO_SCHEMA = 40403


def no_schema(which: object = None) -> RegistryError:
    """Return 40403."""
    return RegistryError(NO_SCHEMA, "Schema not found" if which is None else f"Schema {which} not found")


def subject_deleted(subject: str) -> RegistryError:
    """Return 40404."""
    return RegistryError(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


def subject_not_deleted(subject: str) -> RegistryError:
    """Return 40405."""
    return RegistryError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_deleted(subject: str, version: int) -> RegistryError:
    """Return 40406."""
    return RegistryError(
        40406, f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )


def version_not_deleted(subject: str, version: int) -> RegistryError:
    """Return 40407."""
    return RegistryError(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def no_subject_level(subject: str) -> RegistryError:
    """Return 40408."""
    return RegistryError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    """Return 40409."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, reasons: list[str]) -> RegistryError:
    """Return 409."""
    return RegistryError(
        409,
        f"Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(reasons)}]',
    )


def invalid_schema(reason: str) -> RegistryError:
    """Return 42201."""
    return RegistryError(42201, f"Invalid schema: {reason}")


def invalid_version(version: str) -> RegistryError:
    """Return 42202."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are "
        'between [1, 2^31-1] and the string "latest"',
    )


def invalid_level(level: object) -> RegistryError:
    """Return 42203."""
    return RegistryError(
        42203,
        f"Invalid compatibility level {level!r}. Valid values are none, backward, forward, "
        "full, backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode(mode: object) -> RegistryError:
    """Return 42204."""
    return RegistryError(42204, f"Invalid mode {mode!r}. Valid values are READWRITE, READONLY and IMPORT")


def not_permitted(reason: str) -> RegistryError:
    """Return 42205."""
    return RegistryError(42205, reason)


def is_referenced(subject: str, version: int) -> RegistryError:
    """Return 42206."""
    return RegistryError(42206, f"One or more references exist to the schema {{subject={subject},version={version}}}")


def invalid_request(reason: str) -> RegistryError:
    """Return 422."""
    return RegistryError(422, reason)


def store_failed(reason: str) -> RegistryError:
    """Return 50001."""
    return RegistryError(50001, f"Error in the backend data store: {reason}")


def timed_out(reason: str) -> RegistryError:
    """Return 50002."""
    return RegistryError(50002, f"Operation timed out: {reason}")


def forward_failed(reason: str) -> RegistryError:
    """Return 50003."""
    return RegistryError(50003, f"Error while forwarding the request to the primary: {reason}")


def no_primary() -> RegistryError:
    """Return 50004."""
    return RegistryError(50004, "No instance is the primary right now; try again in a moment")


def not_followed(schema_id: int) -> RegistryError:
    """Return 50301."""
    return RegistryError(
        50301, f"Schema {schema_id} is not here, and the registry that this one follows does not say that it has none"
    )
