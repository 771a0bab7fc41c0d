//! The example for C and C++: it is compiled and run, its bits are compared with Rust's, and the guide is compared with it.
//!
//! Without a compiler the example is not run, and the test says so, unless `CORRNOISE_REQUIRE_CXX` is set, as CI does.

use corrnoise::{CpuOptions, Form, Key, Layout, Mechanism, Plan, Resume, Sampling};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compiler(variable: &str, names: &[&str]) -> Option<String> {
    let works = |name: &String| {
        Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let names = names.iter().map(|name| String::from(*name));
    let found = std::env::var(variable).ok().into_iter().chain(names).find(works);
    let required = std::env::var_os("CORRNOISE_REQUIRE_CXX").is_some();
    assert!(
        found.is_some() || !required,
        "CORRNOISE_REQUIRE_CXX is set, and there is no compiler ({variable})"
    );
    if found.is_none() {
        println!("WARNING: no compiler ({variable}): the header and the example were NOT compiled");
    }
    found
}

/// The folder of the library that cargo built for this test.
fn library_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn compile(compiler: &str, to: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-o"]).arg(to);
    command.arg(root().join("examples/train.c")).arg("-I").arg(root().join("include"));
    command.arg("-L").arg(library_folder()).arg("-lcorrnoise_capi");
    run(command.arg(format!("-Wl,-rpath,{}", library_folder().display())));
}

fn plan() -> Plan {
    let sampling = Sampling::Cyclic { dataset_size: 60, num_batches: 4 };
    Plan::new(8, Form::blt(&[0.3, 0.11], &[0.5, 0.93]).unwrap(), 0.7)
        .unwrap()
        .with_sampling(sampling)
        .unwrap()
}

/// The gradients that the example makes, computed in Rust: 8 steps, resumed in mode `resume` after 4.
fn expected(folder: &Path, resume: Resume) -> Vec<u8> {
    let shard = || Layout::new([("weight", 700), ("bias", 10)]).unwrap().whole();
    // The noise is made again only to be compared, so there is no ledger.
    let key = || Key::from_file(folder.join("noise.key"), "").unwrap().without_ledger();
    let mut noise = Mechanism::cpu(&plan(), key(), shard()).unwrap();
    let mut bytes = Vec::new();
    for step in 0..8 {
        if step == 4 {
            let files = [folder.join("noise.safetensors")];
            let options = CpuOptions::default();
            noise = Mechanism::resume_cpu(&plan(), key(), shard(), &files, resume, options).unwrap();
        }
        let mut weight: Vec<f32> = (0..700).map(|i| i as f32 / 64.0).collect();
        let mut bias: Vec<f32> = (0..10).map(|i| -(i as f32)).collect();
        noise.unchecked_batch().unwrap().add_to_all(&mut [&mut weight, &mut bias]).unwrap();
        bytes.extend(weight.iter().chain(&bias).flat_map(|value| value.to_le_bytes()));
    }
    bytes
}

#[test]
fn the_example_makes_the_bits_that_rust_makes() {
    let Some(compiler) = compiler("CC", &["cc", "gcc", "clang"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("train");
    compile(&compiler, &program);

    plan().save(folder.path().join("plan.json")).unwrap();
    let output = run(Command::new(&program).arg(folder.path()).arg("exact"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&plan().fingerprint().to_string()), "{text}");
    assert!(
        text.contains(&format!("corrnoise {}, noise specification 2", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    let got = std::fs::read(folder.path().join("gradients.bin")).unwrap();
    assert!(got == expected(folder.path(), Resume::Exact), "the example's bits differ");

    // A key is not overwritten: the second run stops with an error that says so.
    let output = Command::new(&program).arg(folder.path()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("noise.key exists"), "{message}");

    // By default the rows after the checkpoint are new.
    for file in ["noise.key", "gradients.bin"] {
        std::fs::remove_file(folder.path().join(file)).unwrap();
    }
    run(Command::new(&program).arg(folder.path()));
    let got = std::fs::read(folder.path().join("gradients.bin")).unwrap();
    let exact = expected(folder.path(), Resume::Exact);
    assert!(got[..exact.len() / 2] == exact[..exact.len() / 2], "the first half is the first incarnation");
    assert!(got[exact.len() / 2..] != exact[exact.len() / 2..], "the second half is another incarnation");
}

#[test]
fn the_header_is_cpp() {
    let Some(compiler) = compiler("CXX", &["c++", "g++", "clang++"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("a.cpp"), folder.path().join("a"));
    let text = "#include <corrnoise.h>\n#include <memory>\nint main() {\n\
        corrnoise_shard *raw = nullptr;\n\
        if (corrnoise_shard_flat(5, &raw) != CORRNOISE_STATUS_OK) return 1;\n\
        std::unique_ptr<corrnoise_shard, decltype(&corrnoise_shard_free)> shard(raw, corrnoise_shard_free);\n\
        corrnoise_range segment = {};\n\
        return corrnoise_shard_segment(shard.get(), 0, &segment) == CORRNOISE_STATUS_OK && segment.end == 5 ? 0 : 2;\n}\n";
    std::fs::write(&source, text).unwrap();
    // The example is linked once against each library.
    let (folder, flag) = (library_folder(), format!("-Wl,-rpath,{}", library_folder().display()));
    let dynamic = ["-L".into(), folder.display().to_string(), "-lcorrnoise_capi".into(), flag];
    let archive = folder.join("libcorrnoise_capi.a").display().to_string();
    let fixed = [archive, "-lpthread".into(), "-ldl".into(), "-lm".into()];
    for (define, libraries) in [("-DPLAIN", dynamic), ("-DCORRNOISE_CUDA", fixed)] {
        let mut command = Command::new(&compiler);
        command.args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", define, "-o"]).arg(&program);
        run(command.arg(&source).arg("-I").arg(root().join("include")).args(libraries));
        run(&mut Command::new(&program));
    }
}

/// The guide's code is the example's, so that it is compiled and run.
#[test]
fn the_guide_shows_the_example() {
    let example = std::fs::read_to_string(root().join("examples/train.c")).unwrap();
    let (_, rest) = example.split_once("/* [guide] */\n").unwrap();
    let (region, _) = rest.split_once("/* [/guide] */").unwrap();
    let guide = std::fs::read_to_string(root().join("../../docs/cpp.md")).unwrap();
    assert!(guide.contains(&format!("```c\n{region}```\n")), "docs/cpp.md differs from examples/train.c");
}
