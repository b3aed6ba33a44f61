//! Starts the real parts for tests: origins, supervisor, gateway.
