//! The pinned compiler, run as a server process.

use super::tokens::{Change, Source};
use crate::ptx::kernels_folder;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process `kernels/build serve` and the folder that it compiles.
pub(super) struct Compiler {
    child: Child,
    ask: ChildStdin,
    answer: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Compiler {
    pub(super) fn start() -> Result<Compiler, String> {
        let failed = |error: std::io::Error| format!("kernels/build serve: {error}");
        let folder = tempfile::tempdir().map_err(failed)?;
        let mut command = Command::new(kernels_folder().join("build"));
        let mut child =
            command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (Some(ask), Some(answer)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("kernels/build serve: no pipes".into());
        };
        Ok(Compiler { child, ask, answer: BufReader::new(answer), folder })
    }

    /// Compiles a module with one change to its sources; returns none if that fails.
    pub(super) fn compile(
        &mut self,
        module: &str,
        files: &[Source],
        change: &Change,
    ) -> Result<Option<String>, String> {
        let failed = |error: std::io::Error| format!("kernels/build serve: {error}");
        for file in files {
            let text = if file.name == change.file { change.apply(&file.text) } else { file.text.clone() };
            std::fs::write(self.folder.path().join(&file.name), text).map_err(failed)?;
        }
        writeln!(self.ask, "{module} {}", self.folder.path().display()).map_err(failed)?;
        let mut line = String::new();
        self.answer.read_line(&mut line).map_err(failed)?;
        match line.trim() {
            "ok" => {
                let path = self.folder.path().join(format!("{module}.ptx"));
                std::fs::read_to_string(path).map(Some).map_err(failed)
            }
            "refused" => Ok(None),
            other => Err(format!("kernels/build serve answered {other:?}: expected ok or refused")),
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        // The process would also end with its input; killing it loses nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
