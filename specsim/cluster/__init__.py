"""Several servers: routers, dispatch, split prefill, clients."""
