//! The C interface: opaque handles, status codes with a message, host and device pointers, the engine's bits.
//!
//! The header `include/corrnoise.h` is written from this crate and is what C and C++ programs read; `docs/cpp.md` is the
//! guide. Its rules are checked as far as a callee can: null and misaligned pointers, overlapping gradients, a handle in use
//! by another thread, text that is not UTF-8. What cannot be checked is the caller's promise, and the *contract* that every
//! `unsafe` block here refers to:
//!
//! - a pointer that is not null points to what the declaration says, for as many items as are said beside it;
//! - a handle came from this library and was not freed; nobody writes to memory that a call reads, while it runs;
//! - gradients are initialised memory of the caller's, used by nobody else during the call.

// One contract holds for every entry; the text above and the header's first lines are it.
#![allow(clippy::missing_safety_doc)]

mod argument;
#[cfg(feature = "cuda")]
mod cuda;
mod gradients;
mod key;
mod mechanism;
mod plan;
mod sampler;
mod shard;
mod status;

#[cfg(feature = "cuda")]
pub use cuda::*;
pub use gradients::*;
pub use key::*;
pub use mechanism::*;
pub use plan::*;
pub use sampler::*;
pub use shard::*;
pub use status::*;

use std::ffi::{CStr, c_char};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version holds no NUL"),
};

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The version of the noise specification: libraries that agree on it make the same bits.
#[unsafe(no_mangle)]
pub extern "C" fn corrnoise_noise_spec_version() -> u32 {
    corrnoise::NOISE_SPEC_VERSION
}
