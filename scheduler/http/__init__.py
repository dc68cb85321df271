"""HTTP/1.1 within limits: a parser and a server, which do not know what is asked of them."""
