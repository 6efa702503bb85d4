"""To the Hugging Face Hub, for who is logged in there."""

import re
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def log_in(name: str) -> Any:
    """What talks to the Hub; ``ValueError`` or ``ConnectionError`` if it would not be let in.

    Args:
        name: ``user/name`` of the repository that will be written to.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"push must be user/name; got {name!r}")
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    hub = huggingface_hub.HfApi()
    try:
        hub.whoami()
    except LocalTokenNotFoundError:
        raise ValueError(
            "push: nobody is logged in to the Hugging Face Hub: run `hf auth login`, or set "
            "HF_TOKEN, and export again"
        ) from None
    except HfHubHTTPError as error:
        raise ValueError(f"push: the Hub does not accept this login: {_line(error)}") from error
    except Exception as error:  # of whatever client the library uses
        raise ConnectionError(f"push: cannot reach the Hub: {_line(error)}") from error
    return hub


def push(hub: Any, folder: Path, name: str, private: bool = False) -> str:
    """Upload a folder, and return where it is.

    Args:
        hub: of ``log_in``.
        folder: what was exported.
        name: of the repository, which is made if it is not there.
        private: visible to its owner only, if it is made.
    """
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(
            repo_id=name, folder_path=folder, commit_message="Encoder exported by dsf"
        )
    except Exception as error:
        raise ConnectionError(
            f"push: {folder} is whole, but the Hub did not take it: {_line(error)}"
        ) from error
    return name


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
