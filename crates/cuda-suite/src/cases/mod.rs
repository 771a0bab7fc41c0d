//! Small cases that reach every instruction of every kernel, with gradients between guards, and the CPU engine's results for them.
//!
//! They run as one test of the suite, and `crates/mutate` judges mutated kernels by them.

mod ahead;
mod case;
mod device;
mod edge;
mod expected;
mod fine;
mod incarnations;
mod list;
#[cfg(test)]
mod mistakes;
mod rare;
mod runs;
mod shared;
mod tiny;
mod witnesses;

pub use case::{Action, Case, Lowered, Onto, Work};
pub use expected::Expected;
pub use list::{deep, fast, leaping, plan};

use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::{Dtype, Element};
use std::path::Path;
use std::sync::Arc;

/// The names of the modules of `crates/cuda/ptx/`, sorted.
pub fn modules() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/ptx");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".ptx")?.to_owned())).collect();
    names.sort();
    names
}

/// Every small case of every module, with gradients of one type.
pub(crate) fn every_small_case<E: Element>(stream: &Arc<CudaStream>) {
    let modules = modules();
    assert!(!modules.is_empty());
    // Which of a form's modules runs is the backend's choice.
    for module in modules.into_iter().filter(|module| !module.ends_with("_80")) {
        for case in fast(&module, E::DTYPE == Dtype::F16).expect("cases of every module") {
            let expected = Expected::<E>::new(case).expect("a CPU run");
            let difference = expected.difference(stream).expect("a CUDA run");
            assert_eq!(difference, None, "{module}, {}", expected.name());
        }
    }
}
