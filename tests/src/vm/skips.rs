//! The list of skips that are allowed, `tests/skips.allow`.

use anyhow::{Result, bail};

/// Names of tests that may be skipped.
#[derive(Debug, Default, Clone)]
pub struct SkipList {
    globs: Vec<String>,
}

impl SkipList {
    /// Reads lines of the form `GLOB REASON`; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// A glob without a reason.
    pub fn parse(text: &str) -> Result<Self> {
        let mut globs = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some((glob, _reason)) = line.split_once(char::is_whitespace) else {
                bail!("the skip `{line}` has no reason");
            };
            globs.push(glob.to_owned());
        }
        Ok(Self { globs })
    }

    /// Whether a skip of the test `name` is allowed. Blanks in the name count as `-`.
    #[must_use]
    pub fn allows(&self, name: &str) -> bool {
        let name: String = name.chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
        self.globs.iter().any(|glob| glob_matches(glob, &name))
    }
}

/// Whether the whole of `text` matches `glob`, in which `*` stands for any text and `?` for one character.
#[must_use]
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Where to go on when the text after the last star turns out not to match.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                retry = Some((g + 1, t));
                g += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                g += 1;
                t += 1;
            }
            Some(_) | None => {
                let Some((after_star, from)) = retry else {
                    return false;
                };
                retry = Some((after_star, from + 1));
                g = after_star;
                t = from + 1;
            }
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (glob, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "vm/6.12/x", true),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("a*b*c", "axbxbxc", true),
            ("?b", "ab", true),
            ("?b", "b", false),
            ("vm/*/20-zoned", "vm/6.12/20-zoned", true),
            ("vm/*/20-zoned", "vm/6.12/20-zoned/append", false),
        ] {
            assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn only_listed_skips_are_allowed() {
        let list = SkipList::parse("# comment\n\nvm/6.12/*zone*  needs 6.13\n").unwrap();
        assert!(list.allows("vm/6.12/20-a/a zone is full"));
        assert!(!list.allows("vm/7.x/20-a/a zone is full"));
        assert!(!SkipList::default().allows("x"));
        assert!(SkipList::parse("no-reason\n").is_err());
    }

    #[test]
    fn blanks_count_as_dashes() {
        let list = SkipList::parse("vm/7.x/20-a/a-zone  reason").unwrap();
        assert!(list.allows("vm/7.x/20-a/a zone"));
    }
}
