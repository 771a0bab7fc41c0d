//! The embedded PTX: one module per form (and per number of buffers), one kernel per gradient type.
//!
//! A module holds what one plan needs, so that the driver compiles seven small kernels and not fifty.

use crate::ahead::table::ring_pitch;
use crate::device::device_error;
use corrnoise_core::form::{Form, Kernel};
use corrnoise_core::{Dtype, Result};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;
use std::sync::Arc;

/// A module, and what GPUs of [`NATIVE_BF16`] and newer run in place of its kernel for bf16.
type Source = [&'static str; 2];

/// The compute capability that has an instruction for rounding to bf16. Older GPUs do it in integers.
const NATIVE_BF16: (i32, i32) = (8, 0);

macro_rules! ptx {
    ($name:literal) => {
        [include_str!(concat!("../ptx/", $name, ".ptx")), include_str!(concat!("../ptx/", $name, "_80.ptx"))]
    };
}

/// A module that makes rows: it has no number type.
macro_rules! make {
    ($name:literal) => {
        include_str!(concat!("../ptx/", $name, ".ptx"))
    };
}

const BLT: [Source; 9] = [
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

const MAKE_BLT: [&str; 8] = [
    make!("make_blt1"),
    make!("make_blt2"),
    make!("make_blt3"),
    make!("make_blt4"),
    make!("make_blt5"),
    make!("make_blt6"),
    make!("make_blt7"),
    make!("make_blt8"),
];

/// The module that makes `rows` rows at a time; none for independent noise.
fn make_source(form: &Form, rows: usize) -> Option<&'static str> {
    match form.kernel() {
        Kernel::Blt(blt) => blt.scale().len().checked_sub(1).map(|i| MAKE_BLT[i]),
        Kernel::Ring(_) if ring_pitch(rows) == 8 => Some(make!("make_ring8")),
        Kernel::Ring(_) => Some(make!("make_ring16")),
        Kernel::Regenerate(_) => Some(make!("make_regenerate")),
    }
}

fn source(form: &Form) -> Source {
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
    /// The kernel that makes rows ahead; the noise kernels then only add them.
    pub(crate) make: Option<CudaFunction>,
}

fn load(context: &Arc<CudaContext>, source: &str) -> Result<Arc<CudaModule>> {
    context.load_module(Ptx::from_src(source)).map_err(device_error("load the embedded PTX"))
}

fn find(module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction> {
    module.load_function(name).map_err(device_error("find a kernel in the embedded PTX"))
}

impl Kernels {
    /// Loads the kernels of a form, or those for `ahead` rows at a time.
    pub(crate) fn load(context: &Arc<CudaContext>, form: &Form, ahead: Option<usize>) -> Result<Kernels> {
        let make = match ahead.and_then(|rows| make_source(form, rows)) {
            Some(text) => Some(find(&load(context, text)?, "make")?),
            None => None,
        };
        Kernels::of_source(context, if make.is_some() { ptx!("add") } else { source(form) }, make)
    }

    /// Loads the kernels that add rows which the device does not make.
    pub(crate) fn load_add(context: &Arc<CudaContext>) -> Result<Kernels> {
        Kernels::of_source(context, ptx!("add"), None)
    }

    fn of_source(
        context: &Arc<CudaContext>,
        [text, native]: Source,
        make: Option<CudaFunction>,
    ) -> Result<Kernels> {
        let module = load(context, text)?;
        let capability =
            context.compute_capability().map_err(device_error("ask for the compute capability"))?;
        let native = if capability >= NATIVE_BF16 { Some(load(context, native)?) } else { None };
        let noise = |dtype: &Dtype| {
            let native = native.as_ref().filter(|_| *dtype == Dtype::Bf16);
            find(native.unwrap_or(&module), &format!("noise_{dtype}"))
        };
        Ok(Kernels {
            noise: Dtype::ALL.iter().map(noise).collect::<Result<_>>()?,
            stage: find(&module, "stage")?,
            advance: find(&module, "advance")?,
            finish: find(&module, "finish")?,
            make,
        })
    }

    pub(crate) fn noise(&self, dtype: Dtype) -> &CudaFunction {
        &self.noise[dtype.tag() as usize]
    }
}
