"""READ FIRST: the express lane. Hot calls of the message path are served straight from the connection's protocol.

    socket -> httptools -> ExpressProtocol -- not hot, or not whole --> uvicorn's cycle, a task, Channels, `asgi.py`
                                |
                                +-- hot and whole --> ExpressCall --> the wire's own function (`hot.py`) --> Answer

Both ways run the same stages, on the same `Request`, to the same `Answer`: no rule of a wire has a second home here.
What is saved is what a framework needs for one request: a scope, a cycle, an event, a task, two messages for an answer,
a timer.

    hot        HTTP/1.1, one of the calls in `hot.py`, nothing about it that asks for more (Expect, Upgrade, chunks)
    whole      head and body are there when the bytes that just came in are read. Nothing waits here for a client: a
               body that is slow, too large or endless is the unmodified path's, with its deadlines
    in turn    the connection owes no other answer. A request that was sent ahead of an answer takes the unmodified
               path, which keeps their order

`ExpressProtocol` keeps what it read until it knows; whatever is not taken is replayed to uvicorn's class in full.
A call runs inside `data_received` until it first has to wait for storage, and from there in the callbacks of the
futures it waits for (`call.py`). It is no task: nothing that a hot call awaits may need one (`asyncio.timeout`,
`asyncio.TaskGroup`), unless it makes its own.
"""
