"""Fit the parts of a request to a target: tools, schemas, messages, parameters, reasoning and cache marks.

`translation/preparation.py` takes the steps in this order, because each needs results of earlier ones:

1. A conversation that another provider stores is refused: nothing in the request can replace it.
2. `limit_output`, `drop_rejected_fields`: no later step has to fit a value that the vendor rejects.
3. `fit_output`: the form of the answer. It precedes the tools, because its optional parameters and unions count
   together with those of strict tools.
4. `plan_search`, `fit_tools`: the plan decides which tools are declared.
5. `fit_required_call`, `fit_reasoning`: both depend on the tools that remain.
6. `fit_history`: calls take the names and the argument shapes (`lifts`) of the fitted tools. In it: every call gets its
   result after it, each turn is fitted, system messages move to positions that the target allows, adjacent messages are
   merged, and the ends are fitted. A turn may disappear, and a move makes other messages adjacent, so none of these can
   come earlier.
7. `fit_extra`, `limit_marks`: the limit of cache marks is common to tools, messages and the body.
8. `fit_reasoning_to_history`: thinking stays off if the history lost the reasoning that the provider requires.
9. `add_instructions`: texts of our own, which need no fitting.
10. `fit_params`: some parameters are not allowed together with reasoning, which is known now.
11. `place_marks`: only if neither the fitted request nor its body has a mark.

A step never raises for a value that can be dropped or rewritten: it adds a loss with the path in the original request.
"""
