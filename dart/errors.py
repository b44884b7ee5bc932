"""The errors a user can cause; each message says what was given, what fits, what to do."""


class DartError(Exception):
    """Base of all errors raised on purpose by this package."""


class ConfigError(DartError, ValueError):
    """A parameter is out of its range or two parameters contradict each other."""


class CheckpointError(DartError):
    """A checkpoint is missing, incomplete, corrupt, or does not fit the target model."""


class UnsupportedModelError(DartError):
    """The target model cannot be decoded with tree attention; the message names the reason."""


class NgramFormatError(DartError, ValueError):
    """An n-gram file is corrupt, truncated, of another format or version."""


class PromptTooLongError(DartError, ValueError):
    """The prompt leaves no room for a new token in the context or under `max_length`."""


class HubError(DartError):
    """A model hub could not be reached or does not have what was asked for."""


class DeviceError(DartError):
    """The device does not exist or ran out of memory."""


class ExtensionError(DartError):
    """Something was asked for that only the C++ extension can do, and it is not there."""
