//! Which symbolic links a receiver makes: only those that cannot lead out of the target directory, unless it was told to make any.

/// A link at `path` (components joined by `/`) with this target stays inside, provided that every directory of `path` is a real one. So `..` may only come
/// first, and not more often than the link lies deep: behind a name, `..` would go up from wherever *that* name leads.
pub fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    let depth = path.split(|b| *b == b'/').count() - 1;
    let parts: Vec<&[u8]> = target.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
    let ups = parts.iter().take_while(|p| **p == b"..").count();
    ups <= depth && !parts[ups..].contains(&&b".."[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_within_are_told_from_those_that_lead_out() {
        for (path, target) in [("l", "x"), ("l", "./x/y"), ("a/l", "../x"), ("a/b/l", "../../c"), ("a/l", ".."), ("l", "..x/y..")] {
            assert!(stays_inside(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
        for (path, target) in [
            ("l", "/etc/passwd"),
            ("l", ".."),
            ("a/l", "../.."),
            ("a/l", "x/../../.."),
            ("a/l", "x/../y"),
            ("l", ""),
            ("a/l", ".././../x"),
            ("l", "x\0y"),
        ] {
            assert!(!stays_inside(path.as_bytes(), target.as_bytes()), "{path} -> {target}");
        }
    }
}
