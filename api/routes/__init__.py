"""The routes, one file a resource; `api.app` lists them."""
