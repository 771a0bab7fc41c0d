//! The text of the sources: every doc comment has at least four words, and no source file has more than 400 lines.
//!
//! A doc comment is read in documentation, in an editor's tooltip or in a help text, far away from its code: a paragraph of
//! fewer than four words leaves the reader to guess its subject. Headings and code examples are not paragraphs.

use std::fs;
use std::path::{Path, PathBuf};

const FEWEST_WORDS: usize = 4;
const MOST_LINES: usize = 400;

/// All Rust files of the repository, but those that Cargo or a tool wrote (`target`, hidden folders).
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The paragraphs of a file's doc comments, each with the number of its first line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut in_example = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim);
        in_example = match doc {
            Some(doc) if doc.starts_with("```") => !in_example,
            Some(_) => in_example,
            None => false,
        };
        match doc {
            Some(doc)
                if !in_example && !doc.is_empty() && !doc.starts_with('#') && !doc.starts_with("```") =>
            {
                let (_, paragraph) = open.get_or_insert_with(|| (number, String::new()));
                paragraph.push_str(doc);
                paragraph.push(' ');
            }
            _ => paragraphs.extend(open.take()),
        }
    }
    paragraphs.extend(open);
    paragraphs
}

/// The number of words of a paragraph. A code span is one word, however much code it quotes.
fn words(paragraph: &str) -> usize {
    let prose: String =
        paragraph.split('`').enumerate().map(|(i, part)| if i % 2 == 0 { part } else { "code" }).collect();
    prose.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut files);
    files.sort();
    assert!(files.len() > 100, "only {} source files were found", files.len());
    files
}

#[test]
fn doc_comments_have_at_least_four_words() {
    let mut short = Vec::new();
    for file in files() {
        for (line, paragraph) in paragraphs(&fs::read_to_string(&file).unwrap()) {
            if words(&paragraph) < FEWEST_WORDS {
                short.push(format!("{}:{line}: {paragraph}", file.display()));
            }
        }
    }
    assert!(short.is_empty(), "{} doc comments are too short:\n{}", short.len(), short.join("\n"));
}

#[test]
fn source_files_have_at_most_400_lines() {
    let mut long = Vec::new();
    for file in files().into_iter().filter(|file| file.components().any(|part| part.as_os_str() == "src")) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        if lines > MOST_LINES {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    assert!(long.is_empty(), "{} source files are too long:\n{}", long.len(), long.join("\n"));
}
