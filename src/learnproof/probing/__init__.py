"""The ladder of probes: small problems whose right answers are known, for any function that trains.

rungs         the problems, each a table of states, actions and outcomes, in the order in which they are climbed
solving       the right answer to each, and what a learner with this or that fault would answer
environment   a rung as a Gymnasium environment
reading       actions and values out of whatever a training function returns
calling       a training function, found by name and called with what it asks for
climbing      trains on each rung over several seeds, asks, and says what is broken
"""
