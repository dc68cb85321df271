"""Scripts that complete a command in bash, zsh or fish, generated from its parser.

Names of jobs and folders are chosen by others: the scripts never expand them, and each shell
inserts them quoted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

_FOLDERS = ("--custom_dir", "--snapshots_dir", "--download")
# Ids and names of the user's newest jobs, one on each line.
_JOBS = "scheduler-state --nlast 50 --words 2>/dev/null"

# bash gives the word without its opening quote, and after the last of `=`, `:` and the like, in $2;
# this is what COMPREPLY replaces. The whole word, as it was typed, is the end of COMP_LINE.
_BASH = """\
# eval "$({prog} --completion bash)"
{function}() {{
    local name quoted line=${{COMP_LINE:0:COMP_POINT}} word=${{COMP_WORDS[COMP_CWORD]}}
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
{values}
    esac
    case $word in
        -*) COMPREPLY=($(compgen -W '{flags}' -- "$word")); return ;;
    esac
{words}
}}
complete -F {function} {prog}"""

_BASH_FOLDERS = """\
        {flags})
            compopt -o filenames || return
            while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -d -- "$2")
            return ;;"""

_BASH_JOBS = r"""
    if [[ $line =~ (^|[[:space:]])([\'\"])([^\'\"]*)$ ]]; then
        word=${BASH_REMATCH[2]}
    elif [[ $line =~ ((\\.|[^[:space:]\\])*)$ ]]; then
        word=${BASH_REMATCH[1]}
    fi
    while IFS= read -r name; do
        case $word in
            \') [[ $name == *\'* ]] && continue
                quoted=$name ;;
            \") quoted=${name//\\/\\\\} quoted=${quoted//\"/\\\"}
                quoted=${quoted//\$/\\\$} quoted=${quoted//\`/\\\`} ;;
            *)  printf -v quoted %q "$name"
                [[ $quoted == "$word"* ]] || quoted=$name
                [[ $quoted == "$word"* ]] && printf -v quoted %q "$name" || continue
                quoted=${quoted#"${word%"$2"}"} ;;
        esac
        [[ $quoted == "$2"* ]] && COMPREPLY+=("$quoted")
    done < <(JOBS)""".replace("JOBS", _JOBS)

_ZSH = """\
# eval "$({prog} --completion zsh)"
(( $+functions[compdef] )) || {{ autoload -U +X compinit && compinit -i; }}
{function}() {{
    case $words[CURRENT-1] in
{values}
    esac
    case $PREFIX in
        -*) compadd -- {flags}; return ;;
    esac
{words}
}}
compdef {function} {prog}"""

_ZSH_JOBS = f'    local -a jobs=("${{(@f)$({_JOBS})}}")\n    compadd -a jobs'


def script(shell: str, prog: str, actions: Sequence[argparse.Action]) -> str:
    options = [
        action
        for action in actions
        if action.option_strings and action.help is not argparse.SUPPRESS
    ]
    names_jobs = any(action.metavar == "JOB" for action in actions)
    if shell == "fish":
        return _fish(prog, options, names_jobs)
    if shell == "zsh":
        return _zsh(prog, options, names_jobs)
    return _bash(prog, options, names_jobs)


def _bash(prog: str, options: Sequence[argparse.Action], names_jobs: bool) -> str:
    values = [_BASH_FOLDERS.format(flags="|".join(_FOLDERS))]
    values += [
        f"        {flag}) COMPREPLY=($(compgen -W '{choices}' -- \"$word\")); return ;;"
        for flag, choices in _choices(options)
    ]
    return _BASH.format(
        prog=prog,
        function=_function(prog),
        values="\n".join(values),
        flags=" ".join(map(_long, options)),
        words=_BASH_JOBS if names_jobs else "",
    )


def _zsh(prog: str, options: Sequence[argparse.Action], names_jobs: bool) -> str:
    values = [f"        {'|'.join(_FOLDERS)}) _files -/; return ;;"]
    values += [
        f"        {flag}) compadd -- {choices}; return ;;" for flag, choices in _choices(options)
    ]
    return _ZSH.format(
        prog=prog,
        function=_function(prog),
        values="\n".join(values),
        flags=" ".join(map(_long, options)),
        words=_ZSH_JOBS if names_jobs else "",
    )


def _fish(prog: str, options: Sequence[argparse.Action], names_jobs: bool) -> str:
    lines = [f"# {prog} --completion fish | source"]
    for option in options:
        line = f"complete -c {prog} -l {_long(option).removeprefix('--')}"
        if option.choices:
            line += f" -x -a '{' '.join(option.choices)}'"
        elif _long(option) in _FOLDERS:
            line += " -x -a '(__fish_complete_directories)'"
        elif option.nargs != 0:
            line += " -x"
        help_text = (option.help or "").replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"{line} -d '{help_text}'")
    if names_jobs:
        lines.append(f"complete -c {prog} -f -a '({_JOBS})'")
    return "\n".join(lines)


def _choices(options: Sequence[argparse.Action]) -> list[tuple[str, str]]:
    return [(_long(option), " ".join(option.choices)) for option in options if option.choices]


def _function(prog: str) -> str:
    return f"_{prog.replace('-', '_')}"


def _long(option: argparse.Action) -> str:
    return next(flag for flag in option.option_strings if flag.startswith("--"))
