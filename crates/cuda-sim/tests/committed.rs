//! The stand-in parses every committed kernel, and refuses nothing in it.

mod common;

use std::path::Path;

use common::Gpu;
use cuda::Status;

fn committed() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/ptx");
    let files = std::fs::read_dir(folder).expect("crates/cuda/ptx");
    let paths =
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "ptx"));
    paths.map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_committed_module_loads() {
    let gpu = Gpu::new();
    let files = committed();
    assert!(!files.is_empty());
    for (path, text) in files {
        if let Err(error) = gpu.load(&text) {
            panic!("{path}: {}", error.text);
        }
    }
}

#[test]
fn an_old_device_refuses_them_all() {
    let gpu = Gpu::among(7..8);
    for (path, text) in committed() {
        assert_eq!(gpu.load(&text).unwrap_err().status, Status::NoBinaryForGpu, "{path}");
    }
}
