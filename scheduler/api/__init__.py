"""The gRPC services, and the conversion between the wire and the model."""
