//! Helpers that run the command line, in this process or in one of its own.
#![allow(dead_code)] // every test file uses a part

use corrnoise::{Form, Plan};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a command line in this process; returns exit code, stdout and stderr.
pub fn run(line: &[&str]) -> (u8, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = std::iter::once("corrnoise").chain(line.iter().copied()).map(Into::into);
    let code = corrnoise_cli::run(arguments, &mut stdout, &mut stderr, corrnoise_cli::Screen::PLAIN);
    (code, String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The JSON that a command line prints.
pub fn json(line: &[&str]) -> Value {
    let (code, stdout, stderr) = run(&[line, &["--json"]].concat());
    assert_eq!((code, stderr.as_str()), (0, ""), "{line:?}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{line:?}: {error}: {stdout}"))
}

/// Runs the binary in a process of its own.
pub fn binary(line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corrnoise")).args(line).output().unwrap()
}

/// Fails unless the object has exactly these keys.
pub fn assert_keys(value: &Value, keys: &[&str]) {
    let mut found: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let mut keys = keys.to_vec();
    found.sort_unstable();
    keys.sort_unstable();
    assert_eq!(found, keys);
}

/// The number that a JSON value holds, to the last digit.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A folder with plans of every kind of form, by name.
pub struct Plans {
    pub folder: tempfile::TempDir,
}

impl Plans {
    pub fn new() -> Plans {
        let folder = tempfile::tempdir().unwrap();
        for (name, form) in forms() {
            Plan::new(30, form, 0.5).unwrap().save(folder.path().join(format!("{name}.json"))).unwrap();
        }
        Plans { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The names of all files.
    pub fn files(&self) -> Vec<String> {
        files(self.folder.path())
    }
}

/// All files under a folder, hidden ones too.
pub fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn forms() -> Vec<(&'static str, Form)> {
    use corrnoise::planner::{Estimator, Factorization, Strategy, strategy::series};
    let tree = Factorization::new(Strategy::Tree(Estimator::Streaming), 30).unwrap();
    vec![
        ("independent", Form::independent()),
        ("blt", Form::blt(&[0.29, 0.13, 0.06], &[0.22, 0.71, 0.944]).unwrap()),
        ("restarted", Form::blt(&[0.29, 0.13], &[0.22, 0.71]).unwrap().with_restarts(7).unwrap()),
        ("ring", Form::banded_toeplitz(&series::binomial(-0.5, 12)).unwrap()),
        (
            "ring-restarted",
            Form::banded_toeplitz(&series::binomial(-0.5, 4)).unwrap().with_restarts(5).unwrap(),
        ),
        ("regenerate", Form::regenerate(&series::binomial(0.5, 5)).unwrap()),
        ("tree", tree.form().unwrap()),
    ]
}
