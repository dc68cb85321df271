"""Scripts that complete a command in bash, zsh or fish, generated from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_FOLDERS = ("--custom_dir", "--snapshots_dir", "--download")
# Ids and names of the user's newest jobs, from the first two columns of the table.
_JOBS = "scheduler-state --nlast 50 2>/dev/null | awk 'NR > 1 {print $1; print $2}'"

_BASH = """\
# eval "$({prog} --completion bash)"
{function}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
    case $previous in
{values}
    esac
    case $word in
        -*) COMPREPLY=($(compgen -W '{flags}' -- "$word")) ;;
        *) {words} ;;
    esac
}}
complete -o default -F {function} {prog}"""

_ZSH = """\
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
"""


def script(shell: str, prog: str, actions: Sequence[argparse.Action]) -> str:
    options = [action for action in actions if action.option_strings]
    names_jobs = any(action.metavar == "JOB" for action in actions)
    if shell == "fish":
        return _fish(prog, options, names_jobs)
    return (_ZSH if shell == "zsh" else "") + _bash(prog, options, names_jobs)


def _bash(prog: str, options: Sequence[argparse.Action], names_jobs: bool) -> str:
    values = [
        f'        {"|".join(_FOLDERS)}) COMPREPLY=($(compgen -d -- "$word")); return ;;',
    ]
    values += [
        f"        {_long(option)}) COMPREPLY=($(compgen -W '{' '.join(option.choices)}'"
        ' -- "$word")); return ;;'
        for option in options
        if option.choices
    ]
    words = f'COMPREPLY=($(compgen -W "$({_JOBS})" -- "$word"))' if names_jobs else ":"
    return _BASH.format(
        prog=prog,
        function=f"_{prog.replace('-', '_')}",
        values="\n".join(values),
        flags=" ".join(_long(option) for option in options),
        words=words,
    )


def _fish(prog: str, options: Sequence[argparse.Action], names_jobs: bool) -> str:
    lines = [f"# {prog} --completion fish | source"]
    for option in options:
        line = f"complete -c {prog} -l {_long(option).removeprefix('--')}"
        if option.choices:
            line += f" -x -a '{' '.join(option.choices)}'"
        elif _long(option) in _FOLDERS:
            line += " -r -a '(__fish_complete_directories)'"
        elif option.nargs != 0:
            line += " -x"
        help_text = (option.help or "").replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"{line} -d '{help_text}'")
    if names_jobs:
        lines.append(f'complete -c {prog} -f -a "({_JOBS.replace("$", chr(92) + "$")})"')
    return "\n".join(lines)


def _long(option: argparse.Action) -> str:
    return next(flag for flag in option.option_strings if flag.startswith("--"))
