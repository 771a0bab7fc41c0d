//! A module of `kernels/`, compiled by the host's C++ compiler with `twin/host.h` in place of CUDA.

use corrnoise_testkit::launch::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A module of `kernels/`, compiled for the host.
pub(crate) struct Module {
    pub(crate) library: libloading::Library,
}

/// A change to a source file: every occurrence of the first text becomes the second.
pub(crate) type Mutation<'a> = (&'a str, &'a str, &'a str);

pub(crate) fn compiler() -> Option<String> {
    let named = std::env::var("CXX").ok();
    let found = named
        .into_iter()
        .chain(["c++".into(), "g++".into(), "clang++".into()])
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success()));
    let required = std::env::var_os("CORRNOISE_REQUIRE_CXX").is_some();
    assert!(found.is_some() || !required, "CORRNOISE_REQUIRE_CXX is set, and there is no C++ compiler");
    if found.is_none() {
        println!(
            "WARNING: no C++ compiler (CXX, c++, g++, clang++): the kernels' host twin was NOT compared"
        );
    }
    found
}

impl Module {
    pub(crate) fn build(
        compiler: &str,
        name: &str,
        source: &str,
        define: &str,
        mutation: Option<Mutation<'_>>,
    ) -> Module {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        // A folder of its own, so that tests that run at the same time do not overwrite each other.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for file in std::fs::read_dir(root.join("kernels")).unwrap().map(|entry| entry.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".cu") || name.ends_with(".cuh") {
                let mut text = std::fs::read_to_string(&file).unwrap();
                if let Some((in_file, from, to)) = mutation.filter(|mutation| mutation.0 == name) {
                    assert!(text.contains(from), "{in_file} does not contain {from:?}");
                    text = text.replace(from, to);
                }
                std::fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let library: PathBuf = folder.path().join(format!("{name}.so"));
        let mut command = Command::new(compiler);
        command.args(["-std=c++14", "-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno"]);
        // Two modules have shared memory of the same name: hidden, it is not taken for one variable of the process.
        command.arg("-fvisibility=hidden");
        // The checks of fortified headers take a jump to another stack for a mistake.
        command.args(["-shared", "-fPIC", "-w", "-U_FORTIFY_SOURCE", "-o"]).arg(&library);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            command.args(["-mfma", "-mf16c"]);
        }
        command.arg(format!("-DKERNEL=\"{source}\""));
        command.args(define.split(' ').map(|define| format!("-D{define}")));
        let entry = if source.starts_with("make_") { "make.cpp" } else { "entry.cpp" };
        command.arg(format!("-I{}", folder.path().display())).arg(root.join("tests/twin").join(entry));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library is ours and has no initialisers.
        let library = unsafe { libloading::Library::new(&library) }.unwrap();
        Module { library }
    }
    /// Runs the tiles of a launch in two threads, each on its half of them.
    ///
    /// # Safety
    /// The addresses in `args` lead to memory as the kernel expects it there, with gradients of the type that `element` is the tag of.
    pub(crate) unsafe fn run_tiles(&self, args: &Args, element: u32) {
        type Entry = unsafe extern "C" fn(*const Args, u32, u64, u64);
        // SAFETY: `run_tiles` in entry.cpp has this type.
        let entry = *unsafe { self.library.get::<Entry>(b"run_tiles") }.unwrap();
        let tiles = args.num_tiles;
        std::thread::scope(|scope| {
            for (first_tile, end_tile) in [(0, tiles / 2), (tiles / 2, tiles)] {
                // SAFETY: the caller's promise; no tile is another thread's.
                scope.spawn(move || unsafe { entry(args, element, first_tile, end_tile) });
            }
        });
    }

    /// Runs the blocks of a launch of `make`, one after another.
    ///
    /// # Safety
    /// The addresses in `args` lead to memory as the kernel expects it there.
    pub(crate) unsafe fn run_blocks(&self, args: &Args, blocks: u64) {
        type Entry = unsafe extern "C" fn(*const Args, u64);
        // SAFETY: `run_blocks` in make.cpp has this type.
        let entry = *unsafe { self.library.get::<Entry>(b"run_blocks") }.unwrap();
        // SAFETY: the caller's promise.
        unsafe { entry(args, blocks) };
    }
}

/// True if `CORRNOISE_TWIN` is `all`: every value, every turn and every mistake, which takes minutes. CI asks for it.
fn is_everything_asked_for() -> bool {
    std::env::var("CORRNOISE_TWIN").is_ok_and(|what| what == "all")
}

/// The last coordinate of a long comparison, or a tenth of it.
pub(super) fn part(end: u64) -> u64 {
    if is_everything_asked_for() { end } else { end / 10 }
}

/// Of so many cases one is run; all of them if everything is asked for.
pub(super) fn one_of() -> usize {
    if is_everything_asked_for() { 1 } else { 5 }
}
