//! What servers send, and which model and address are meant.
