//! The online half of corrnoise: from a [`Plan`] and a [`Key`] to noisy gradients, one fused pass per step.
//!
//! Noise is a pure function of names, `(key, row, coordinate) → f32`; `docs/noise-spec.md` defines it to the bit, and
//! [`noise`], [`chacha`], [`gauss`] and [`mod@reference`] are that text in code. The rest makes it fast ([`Cpu`]), safe to use
//! ([`Mechanism`]) and safe to stop and resume ([`Checkpoint`]); [`Sampler`] and [`Guard`] say who takes part in a step.

#[cfg(target_endian = "big")]
compile_error!("checkpoints are little-endian and are read without conversion");

pub mod backend;
pub mod chacha;
mod checkpoint;
mod cpu;
pub mod dtype;
mod error;
#[doc(hidden)]
pub mod file;
#[doc(hidden)]
pub mod fork;
pub mod form;
pub mod gauss;
mod gradients;
pub mod grid;
mod huge_pages;
mod key;
mod layout;
mod ledger;
mod mechanism;
pub mod noise;
mod plan;
pub mod raw;
pub mod reference;
mod row;
mod sampler;
mod sealed;
#[doc(hidden)]
pub mod secret;
pub mod vectors;
pub mod warning;

pub use chacha::Rounds;
pub use checkpoint::Checkpoint;
pub use cpu::{Cpu, CpuOptions, Isa, RowPart, RowSink, row_parts};
pub use dtype::{Dtype, Element};
pub use error::{Error, Result};
pub use form::Form;
pub use gradients::Gradients;
pub use huge_pages::huge_pages;
pub use key::{Key, RunKey};
pub use layout::{Layout, Shard, Tensor};
pub use mechanism::{Mechanism, Resume, SaveOptions};
pub use plan::{Certificate, Fingerprint, NOISE_SPEC_VERSION, Plan};
pub use row::{Family, Incarnations, Row};
pub use sampler::{Admission, Batch, Guard, Sampler, Sampling};
