//! Text within a number of columns: lines end at words, and what continues a line is indented like it.

use console::measure_text_width;

/// Breaks every line that is wider than `width` at spaces. A word that is wider stays whole, on a line of its own.
///
/// Lines that fit stay as they are, spaces included. The rest of an indented line is indented by two columns more, so that
/// items of a list can be told apart.
pub fn wrap(text: &str, width: usize) -> String {
    let wrapped = |line: &str| {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let hanging = if indent == 0 { 0 } else { indent + 2 };
        lines(line, width, hanging).join("\n")
    };
    text.split('\n').map(wrapped).collect::<Vec<_>>().join("\n")
}

/// One line as several, all but the first indented by `hanging` columns.
pub fn lines(line: &str, width: usize, hanging: usize) -> Vec<String> {
    if measure_text_width(line) <= width {
        return vec![line.to_owned()];
    }
    let start = &line[..line.len() - line.trim_start_matches(' ').len()];
    let mut lines = vec![start.to_owned()];
    let (mut used, mut is_empty) = (start.len(), true);
    for word in words(line) {
        let needed = measure_text_width(&word);
        if !is_empty && used + 1 + needed > width {
            lines.push(" ".repeat(hanging));
            (used, is_empty) = (hanging, true);
        }
        if let Some(last) = lines.last_mut() {
            if !is_empty {
                last.push(' ');
                used += 1;
            }
            last.push_str(&word);
        }
        used += needed;
        is_empty = false;
    }
    lines
}

/// What is never broken: the words of a line, where an equation such as "p = 0.1" is one word.
pub fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        match words.last_mut() {
            Some(last) if word == "=" || last == "=" || last.ends_with(" =") => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_words_and_continue_where_they_began() {
        let text = "Claim: as long as it holds\n  - one assumption, two lines\n\n  x    y\nunbreakable-word-of-columns z";
        let expected = "Claim: as long\nas it holds\n  - one\n    assumption,\n    two lines\n\n  x    y\nunbreakable-word-of-columns\nz";
        assert_eq!(wrap(text, 16), expected);
        assert_eq!(wrap(text, 200), text);
    }

    #[test]
    fn equations_stay_whole() {
        assert_eq!(wrap("10 blocks, Poisson, p = 0.1", 24), "10 blocks, Poisson,\np = 0.1");
        assert_eq!(words("b = 100,  B = 2"), ["b = 100,", "B = 2"]);
        assert_eq!(words("= 1"), ["= 1"]);
    }

    #[test]
    fn colours_and_letters_of_several_bytes_count_as_they_are_seen() {
        let text = "\x1b[1mεεεε\x1b[0m δδδδ";
        assert_eq!(wrap(text, 9), text);
        assert_eq!(wrap(text, 8), "\x1b[1mεεεε\x1b[0m\nδδδδ");
    }
}
