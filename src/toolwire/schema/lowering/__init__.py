"""Lower schemas to the dialects of providers, and lift the arguments back.

`lower` (lowered.py) takes these steps:

1. A schema that conforms to the dialect is returned itself: nothing can be lost, and it is not even parsed.
2. `schema/parsing` reads the others into nodes, once for all dialects.
3. `Emitter` emits the nodes as a schema of the dialect, together with the codec that converts arguments. A constraint
   that the dialect lacks gets another shape, which the codec undoes, or moves into the description.
   References to a recursive definition are emitted before the definition, when it is not known yet whether its values
   change their shape. So the emission is repeated with the definitions found to change, and all that refer to them,
   until no other is found. The set only grows, so this ends.
4. `conformance` checks the result against the rules of the dialect. A violation does not raise: it is a loss of
   severity `error`, and the first is `Lowered.problem`, so that the caller decides what to send.
5. Undocumented limits of the provider and keywords that it ignores are reported last, because they concern the schema
   that is sent.

The input is never changed, and a valid schema never raises. Inlined references and unrolled recursion can grow
exponentially, so the emitter has budgets in proportion to the schema; beyond them a value is JSON in a string, which
every dialect can express and the codec reads.
"""
