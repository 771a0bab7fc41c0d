//! BLT strategies of least loss.
