"""A SuperLink in this process for Flower's own grid: replies are stored as objects, which tests may change."""

import json

from flwr.app import Context, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedResponse, ObjectTree, PullObjectResponse, PushObjectResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import GetNodesResponse, PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_head_values_from_object_content,
    get_object_id,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.superlink.grid import HttpGrid

DIVIDER = b"\x00"


class Link:
    """The Runtime API of a SuperLink with one node per client. Each node replies when its order is pulled.

    `spoil(t, client, reply)` may return the objects of another reply, by id, with the id of the message last.
    """

    def __init__(self, answer, nodes):
        self.answer, self.nodes = answer, nodes
        self.spoil = lambda t, client, reply: None
        self.withheld = lambda t, client: False
        self.orders, self.objects, self.confirmed = {}, {}, []

    def GetNodes(self, request):
        return GetNodesResponse(nodes=[NodeInfo(node_id=n, last_activated_at="1") for n in self.nodes])

    def PushMessages(self, request):
        for message, tree in zip(request.messages_list, request.message_object_trees, strict=True):
            self.orders[message.metadata.message_id] = tree
        ids = [message.metadata.message_id for message in request.messages_list]
        missing = {node.object_id for tree in request.message_object_trees for node in iterate_object_tree(tree)}
        return PushAppMessagesResponse(message_ids=ids, objects_to_push=missing, session_id="s")

    def PushObject(self, request):
        self.objects[request.object_id] = request.object_content
        return PushObjectResponse(stored=True)

    def PullMessages(self, request):
        messages, trees = [], []
        for order_id in request.message_ids:
            if order_id not in self.orders:
                continue
            order = inflate_object_from_contents(order_id, dict(self.objects), keep_object_contents=True)
            order.metadata.__dict__["_message_id"] = order_id
            reply = self.answer(order, self.nodes[order.metadata.dst_node_id])
            if reply is None:
                continue
            del self.orders[order_id]
            metadata = message_to_proto(reply if reply.has_error() else remove_content_from_message(reply))
            t, client = int(order.metadata.group_id or -1), self.nodes[order.metadata.dst_node_id]
            objects = self.spoil(t, client, reply) or deflated(reply)
            *_, metadata.metadata.message_id = objects
            self.objects |= {} if self.withheld(t, client) else objects
            messages.append(metadata)
            children = [ObjectTree(object_id=object_id) for object_id in list(objects)[:-1]]
            trees.append(ObjectTree(object_id=metadata.metadata.message_id, children=children))
        return PullAppMessagesResponse(messages_list=messages, message_object_trees=trees)

    def PullObject(self, request):
        content = self.objects.get(request.object_id)
        return PullObjectResponse(
            object_found=True, object_available=content is not None, object_content=content or b""
        )

    def ConfirmMessageReceived(self, request):
        self.confirmed.append(request.message_object_id)
        return ConfirmMessageReceivedResponse()


class LinkGrid(HttpGrid):
    """Flower's grid, connected to a Link."""

    def __init__(self, app, folder, config, clients):
        super().__init__(token="test")
        self.link = Link(self.answer, {100 + i: i for i in range(clients)})
        self.app, self.folder, self.config = app, folder, config
        self.fails = lambda kind, t, client: None
        self.set_run(Run.create_empty(1))

    _runtime_client = property(lambda self: self.link)

    def answer(self, order, client):
        if self.fails(order.metadata.message_type, int(order.metadata.group_id or -1), client) == "silent":
            return None
        config = {"client-id": client, "state": str(self.folder)}
        return self.app(order, Context(1, order.metadata.dst_node_id, config, RecordDict(), self.config))


def deflated(reply):
    """The objects of a message, by id; the message itself is last."""
    return {object_id: nested.deflate() for object_id, nested in get_all_nested_objects(reply).items()}


def rewritten(reply, kind, change):
    """The objects of a reply in which `change` replaces the body of the first object of this kind; hashes are right."""
    renamed, objects = {}, {}
    for object_id, nested in get_all_nested_objects(reply).items():
        content = nested.deflate()
        for old, new in renamed.items():
            content = content.replace(old.encode(), new.encode())
        kind_here, children, _ = get_object_head_values_from_object_content(content)
        if kind_here == kind and not renamed:
            body = change(content[content.index(DIVIDER) + 1 :])
            content = " ".join([kind, ",".join(children), str(len(body))]).encode() + DIVIDER + body
        new_id = get_object_id(content)
        if new_id != object_id:
            renamed[object_id] = new_id
        objects[new_id] = content
    return objects


def with_chunks(indices):
    """Changes an Array's list of chunks."""

    def change(body):
        return json.dumps({**json.loads(body), "arraychunk_ids": indices}).encode()

    return change
