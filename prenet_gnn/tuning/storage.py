"""Where a study lives: a journal file, or a database that several machines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prenet_gnn.errors import ConfigError

STUDY_NAME = "prenet"
JOURNAL = "study.journal"
# psycopg 3; without a driver in the address SQLAlchemy would take psycopg2.
_POSTGRES = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
ALLOWED = "a path of a journal file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE"


def storage_address(storage: str, folder: Path) -> str:
    """The address of a study: the journal in its folder unless another one is given."""
    if not storage:
        return str((folder / JOURNAL).resolve())
    scheme, mark, rest = storage.partition("://")
    if not mark:
        return str(Path(storage).expanduser().resolve())
    driver = _POSTGRES.get(scheme, scheme)
    if driver.partition("+")[0] not in ("sqlite", "postgresql", "mysql"):
        raise ConfigError(f"storage '{storage}' is not known. Allowed: {ALLOWED}.")
    return f"{driver}://{rest}"


def open_storage(address: str) -> Any:
    """Opens a storage of Optuna.

    Raises:
        ConfigError: It cannot be reached.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    if "://" not in address:
        path = Path(address)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return JournalStorage(JournalFileBackend(str(path)))
        except OSError as error:
            raise ConfigError(f"cannot open the study '{path}': {error.strerror}.") from None
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        # Trials take a minute: a connection for each question, and none that a server may cut off.
        return optuna.storages.RDBStorage(address, engine_kwargs={"poolclass": NullPool})
    except (SQLAlchemyError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"cannot open the study at '{_hidden(address)}': {reason}") from None


def open_study(address: str, directions: tuple[str, ...] = ("minimize",)) -> Any:
    """The study of an address; made when it is not there yet.

    Raises:
        ConfigError: The storage cannot be reached, or the study there has other objectives.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    wanted: list[Any] = list(directions)
    study = optuna.create_study(
        storage=open_storage(address),
        study_name=STUDY_NAME,
        directions=wanted,
        load_if_exists=True,
    )
    if len(study.directions) != len(directions):
        raise ConfigError(
            f"the study at '{_hidden(address)}' has {len(study.directions)} objectives, not "
            f"{len(directions)}: give another folder or storage."
        )
    return study


def _hidden(address: str) -> str:
    """The address without a password."""
    scheme, mark, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{mark}{user.partition(':')[0]}{at}{host}" if at else address
