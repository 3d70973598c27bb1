"""Orders and replies over Flower: messages to and from SuperNodes, and limits on the bytes that clients send.

`wire` converts orders and replies to Flower's records and back. `mailbox` sends the orders of a round and collects the
replies, `roster` knows the SuperNode of each client. Both receive through `reply_puller`, which checks each reply with
`reply_limits` and `reply_objects` before Flower decodes it. This package exports no names, because `reply_limits` must
be imported without Flower: the settings of a deployment use it.
"""
