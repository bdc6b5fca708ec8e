//! Wraps sentences between words, so that no word is cut at the edge of the terminal.

/// The text in lines of at most `width` characters, each broken at a space; a word that is longer has a line of its own. Lines after
/// the first begin with `indent` spaces.
pub(crate) fn wrap(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut lines = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(" ".repeat(indent));
            length = indent;
        } else if length > 0 {
            append(&mut lines, " ");
            length += 1;
        }
        append(&mut lines, word);
        length += word_length;
    }
    lines.join("\n")
}

fn append(lines: &mut [String], text: &str) {
    if let Some(line) = lines.last_mut() {
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let text = "ok   config: 98 keys at their defaults; auth.hs256_secret from the environment";

        assert_eq!(wrap(text, None, 5), text);
        assert_eq!(
            wrap(text, Some(44), 5),
            "ok   config: 98 keys at their defaults;\n     auth.hs256_secret from the environment"
        );
        assert_eq!(wrap("a verylongword b", Some(6), 2), "a\n  verylongword\n  b");
        assert_eq!(wrap("", Some(6), 2), "");
    }
}
