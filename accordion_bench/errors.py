"""The two ways in which this program ends badly, each with its exit code."""


class UserError(Exception):
    """Wrong input. The message is one line: what, allowed, given, remedy. Exit code 2."""

    exit_code = 2


class InProgress(UserError):
    """The run is being worked on by another job. Sweeps go on with other runs and come back to it."""


class RunFailure(Exception):
    """A fault at run time. The message names the run, the worker and the cause. Exit code 1."""

    exit_code = 1


class Diverged(RunFailure):
    """The loss or a gradient stopped being finite."""

    def __init__(self, epoch: int, step: int, layer: str, what: str = "gradient") -> None:
        self.epoch, self.step, self.layer, self.what = epoch, step, layer, what
        super().__init__(f"diverged: {what} became non-finite in epoch {epoch}, step {step}, layer {layer}")

    def __reduce__(self) -> tuple[type, tuple[int, int, str, str]]:
        return type(self), (self.epoch, self.step, self.layer, self.what)


class Interrupted(KeyboardInterrupt):
    """A signal asked to stop, and a checkpoint has been written. Exit code 128 + signal, as shells do."""

    def __init__(self, signal_number: int, where: str) -> None:
        self.signal_number = signal_number
        self.where = where
        self.exit_code = 128 + signal_number
        super().__init__(f"interrupted {where}; the same command continues from there")

    def __reduce__(self) -> tuple[type, tuple[int, str]]:
        return type(self), (self.signal_number, self.where)
