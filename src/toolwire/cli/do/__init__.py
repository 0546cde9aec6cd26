"""`toolwire do`: from a request to one command line.

1. `candidates` searches the commands of the machine (manuals, as `man` renders them, and completion files; no candidate
   runs) and the tools of `-t`. A named command without a page is learned from its `--help`, in a restricted process (`command_help`).
2. `command` lets a model fill a call of one candidate. A call that does not fit is returned to it once.
3. The checked arguments become an argument vector (`retrieve/commands/command_tool.py`), with its effect.
4. `execution` shows the vector and the effect, asks, runs it and collects its output.

These rules hold:

- At most one command runs, as a vector. No shell reads it, and no value can become an option.
- The model never decides whether to run: the effect is judged from the vector, by fixed lists. Only a command of the
  read-only list runs without a question, under `--yes`, from a folder of the system, with a short environment, and
  only if the request does not ask for a change and no argument is a device, pipe or socket.
- The command is shown before the question, on the terminal of the question. Text typed before it is no answer.
- The local model is right in less than half of the cases (bench/do.py): its command never runs without a confirmation.
"""
