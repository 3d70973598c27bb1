"""fedsum flower settings"""

from .console import Json, print_json
from .settings_command import Markdown, print_settings


def flower_settings(as_json: Json = False, markdown: Markdown = False) -> None:
    """List the settings of a deployment, the keys of \\[tool.flwr.app.config] in the app's pyproject.toml."""
    from ..flower import setting_rows

    if as_json:
        print_json(setting_rows())
        return
    caption = "[algorithm] and [schedule] are tables of [tool.flwr.app.config]"
    print_settings(setting_rows(), "Settings of a deployment", caption, markdown)
