"""gRPC for users, trainings and agents, and the conversion between wire and model. The HTTP of old
images is in legacy/; nothing here talks to the cluster or decides anything."""
