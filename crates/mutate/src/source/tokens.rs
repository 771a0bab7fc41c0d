//! Mutations of a line of CUDA: tokens and literals that can be replaced.

use std::fmt;
use std::path::Path;

/// A source file of the kernels.
pub(super) struct Source {
    pub name: String,
    pub text: String,
}

/// A change of one token of one line.
pub(super) struct Change {
    pub file: String,
    /// The line, counted from 0.
    pub line: usize,
    /// The position of the token in the line.
    at: usize,
    pub from: String,
    pub to: String,
    pub kind: &'static str,
    /// The whole line, for messages and classes.
    pub whole: String,
}

impl Change {
    /// The file's text with the change applied.
    pub(super) fn apply(&self, text: &str) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[self.line].replace_range(self.at..self.at + self.from.len(), &self.to);
        lines.join("\n") + "\n"
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from.trim(), if self.to.is_empty() { "(nothing)" } else { self.to.trim() });
        write!(f, "{}:{}: {from} -> {to} in {}", self.file, self.line + 1, self.whole.trim())
    }
}

/// The sources of the kernels, sorted by name.
pub(super) fn sources(folder: &Path) -> Result<Vec<Source>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".cu") || name.ends_with(".cuh") {
            sources.push(Source { name, text: std::fs::read_to_string(&path).map_err(failed)? });
        }
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sources)
}

/// Tokens and their replacements, with the kind of each change.
const TOKENS: &[(&str, &str, &str)] = &[
    ("arithmetic", " + ", " - "),
    ("arithmetic", " - ", " + "),
    ("arithmetic", " * ", " + "),
    ("arithmetic", " / ", " * "),
    ("arithmetic", " % ", " / "),
    ("arithmetic", " += ", " -= "),
    ("logic", " & ", " | "),
    ("logic", " | ", " & "),
    ("logic", " ^ ", " | "),
    ("logic", " << ", " >> "),
    ("logic", " >> ", " << "),
    ("logic", " |= ", " = "),
    ("logic", " && ", " || "),
    ("logic", " || ", " && "),
    ("logic", "!work", "work"),
    ("comparison", " < ", " <= "),
    ("comparison", " <= ", " < "),
    ("comparison", " > ", " >= "),
    ("comparison", " >= ", " > "),
    ("comparison", " == ", " != "),
    ("comparison", "true", "false"),
    ("comparison", "false", "true"),
    ("rounding", "_rn(", "_rz("),
    ("operand", "scale[i]", "decay[i]"),
    ("operand", "decay[i]", "scale[i]"),
    ("operand", "first", "length"),
    ("operand", "low", "high"),
    ("operand", "head", "count"),
    ("operand", "-args", "args"),
    ("operand", "-coefs", "coefs"),
    ("operand", "min(", "max("),
    ("operand", "work.live", "true"),
    ("operand", "fresh", "false"),
    ("operand", "[j]", "[j ^ 1]"),
    ("operand", "[i]", "[i ^ 1]"),
    ("operand", "(u64)", "(u32)"),
    ("operand", "(i64)", "(int)"),
];

/// Every change of one token that a file allows.
pub(super) fn changes(source: &Source) -> Vec<Change> {
    let mut out = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let skipped = ["#pragma", "#include", "#if", "#e", "static_assert", "typedef", "struct"];
        if skipped.iter().any(|start| code.trim_start().starts_with(start)) {
            continue;
        }
        let mut push = |at: usize, from: &str, to: String, kind| {
            let (file, whole) = (source.name.clone(), line.to_owned());
            out.push(Change { file, line: number, at, from: from.to_owned(), to, kind, whole });
        };
        for (kind, from, to) in TOKENS {
            code.match_indices(from).for_each(|(at, _)| push(at, from, (*to).to_owned(), kind));
        }
        for (at, literal) in literals(code) {
            constants(literal).into_iter().for_each(|to| push(at, literal, to, "constant"));
        }
        let statement = code.trim();
        let declares =
            ["return", "const ", "u32 ", "float ", "for "].iter().any(|word| statement.starts_with(word));
        if statement.ends_with(';') && !declares && !statement.contains('{') && code.starts_with("    ") {
            push(code.len() - code.trim_start().len(), statement, ";".to_owned(), "statement");
        }
    }
    out
}

/// The integer literals of a line, with their positions.
fn literals(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|byte| word(**byte)).count();
        if end > at && bytes[at].is_ascii_digit() && !code[at..end].contains('.') {
            out.push((at, &code[at..end]));
        }
        at = end.max(at + 1);
    }
    out
}

/// A literal plus one, minus one, zero, and with some bits flipped.
fn constants(literal: &str) -> Vec<String> {
    let digits = literal.trim_end_matches(['u', 'l']);
    let suffix = &literal[digits.len()..];
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let Ok(value) = value else { return vec![] };
    let others = [
        value.wrapping_add(1),
        value.wrapping_sub(1),
        0,
        value ^ 2,
        value ^ 8,
        value ^ 64,
        value ^ 256,
        value ^ 1 << 15,
    ];
    let mut others: Vec<u64> =
        others.into_iter().filter(|other| *other != value && *other <= u32::MAX.into()).collect();
    others.dedup();
    others.into_iter().map(|other| format!("{other:#x}{suffix}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_their_line_and_comments_are_left_alone() {
        let text = "// 5 + 6\n    const u32 *key = args.keys + 8 * (term.row >> 40 & 0xffff); // a + b\n    x += 1;\n";
        let source = Source { name: "a.cu".into(), text: text.into() };
        let all = changes(&source);
        assert!(all.iter().all(|change| change.line > 0));
        let has = |from: &str, to: &str| {
            all.iter().any(|change| (change.from.as_str(), change.to.as_str()) == (from, to))
        };
        assert!(has(" >> ", " << ") && has("0xffff", "0xfffe") && has("40", "0x29") && has("x += 1;", ";"));
        assert_eq!(all.iter().filter(|change| change.from == " + ").count(), 1);
        let mask = all.iter().find(|change| change.to == "0xfffe").unwrap();
        assert_eq!(mask.apply(text), text.replace("0xffff", "0xfffe"));
        assert!(mask.to_string().starts_with("a.cu:2: 0xffff -> 0xfffe"));
    }
}
