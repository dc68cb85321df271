"""The API's messages as JSON and as text, for the commands and for the gateway. Pure."""
