//! The embedded PTX: one module per form (and per number of buffers), one kernel per gradient type.
//!
//! A module holds what one plan needs, so that the driver compiles six small kernels and not fifty.

use crate::device::device_error;
use corrnoise_core::form::{Form, Kernel};
use corrnoise_core::{Dtype, Result};
use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

macro_rules! ptx {
    ($name:literal) => {
        include_str!(concat!("../ptx/", $name, ".ptx"))
    };
}

const BLT: [&str; 9] = [
    ptx!("blt0"),
    ptx!("blt1"),
    ptx!("blt2"),
    ptx!("blt3"),
    ptx!("blt4"),
    ptx!("blt5"),
    ptx!("blt6"),
    ptx!("blt7"),
    ptx!("blt8"),
];

fn source(form: &Form) -> &'static str {
    match form.kernel() {
        Kernel::Blt(blt) => BLT[blt.scale().len()],
        Kernel::Ring(_) => ptx!("ring"),
        Kernel::Regenerate(_) => ptx!("regenerate"),
    }
}

/// The kernels of one form. A clone keeps the same module loaded.
#[derive(Clone)]
pub(crate) struct Kernels {
    /// The noise kernels, by the tag of the gradient's number type.
    noise: Vec<CudaFunction>,
    pub(crate) stage: CudaFunction,
    pub(crate) advance: CudaFunction,
    pub(crate) finish: CudaFunction,
}

impl Kernels {
    pub(crate) fn load(context: &Arc<CudaContext>, form: &Form) -> Result<Kernels> {
        let module = context
            .load_module(Ptx::from_src(source(form)))
            .map_err(device_error("load the embedded PTX"))?;
        let function = |name: &str| {
            module.load_function(name).map_err(device_error("find a kernel in the embedded PTX"))
        };
        Ok(Kernels {
            noise: Dtype::ALL
                .iter()
                .map(|dtype| function(&format!("noise_{dtype}")))
                .collect::<Result<_>>()?,
            stage: function("stage")?,
            advance: function("advance")?,
            finish: function("finish")?,
        })
    }

    pub(crate) fn noise(&self, dtype: Dtype) -> &CudaFunction {
        &self.noise[dtype.tag() as usize]
    }
}
