//! Dense strategies of least loss.
