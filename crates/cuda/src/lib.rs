//! The CUDA engine: the same bits as the CPU engine, from fused kernels on the caller's stream and device pointers.
//!
//! Kernels are embedded as PTX (`kernels/`), so a machine needs the NVIDIA driver (525 or later) and a GPU from Volta on, and
//! nothing else. Without them every entry point returns an error; nothing panics and the program still starts.
//!
//! ```no_run
//! use corrnoise_core::{Form, Key, Mechanism, Plan, Shard};
//! use corrnoise_cuda::{OnCuda, stream};
//!
//! let plan = Plan::new(2000, Form::independent(), 0.8)?;
//! let stream = stream(0)?; // or the stream your trainer already has
//! let mut noise = Mechanism::cuda(&plan, Key::from_os()?, Shard::whole(1 << 20)?, &stream)?;
//! let mut gradient = stream.alloc_zeros::<f32>(1 << 20).expect("device memory"); // yours, clipped and summed
//! noise.add_to(&mut gradient)?; // enqueued on `stream`; returns at once
//! # Ok::<(), corrnoise_core::Error>(())
//! ```

mod ahead;
mod backend;
mod current;
mod device;
mod gradient;
mod host;
mod host_made;
mod launch;
mod mechanism;
mod memory;
mod module;
mod options;
mod owned;
mod replay;
mod secret_words;
mod side_stream;
mod state;
mod stream;

pub use backend::Cuda;
pub use cudarc;
pub use current::{KeepCurrent, keep_current};
pub use device::{device_count, stream};
pub use gradient::DeviceGradient;
pub use host_made::{HostMade, HostMadeOptions, MadeOnHost};
pub use mechanism::OnCuda;
pub use options::CudaOptions;
pub use stream::Stream;
