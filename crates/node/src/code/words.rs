//! The words of codes: common, easily told apart when spoken, and far enough apart that a typing error makes none of them another.

/// At least so many letters are inserted, left out or changed between two of them.
pub const DISTANCE: usize = 3;

/// Eight bits each.
#[rustfmt::skip]
pub const WORDS: [&str; 256] = [
    "acorn", "almond", "anchor", "antler", "apple", "apron", "atlas", "autumn", "avocado", "bagel", "bamboo", "banjo", "basket", "beacon",
    "bicycle", "biscuit", "blossom", "bonfire", "boulder", "bracelet", "bridge", "bronze", "bubble", "buffalo", "button", "cabin",
    "cactus", "canoe", "captain", "caramel", "castle", "cedar", "chapel", "cherry", "chimney", "cinema", "circus", "clover", "cobalt",
    "coconut", "comet", "cousin", "coyote", "crayon", "cricket", "crystal", "cupcake", "cushion", "cypress", "daisy", "dancer", "desert",
    "diamond", "dolphin", "donkey", "drawer", "drummer", "dungeon", "eagle", "eclipse", "elephant", "ember", "emerald", "engine",
    "envelope", "evening", "fabric", "falcon", "feather", "finger", "flannel", "flute", "forest", "fossil", "fountain", "foxglove",
    "freckle", "furnace", "galaxy", "garden", "gazelle", "giraffe", "glacier", "goblet", "gondola", "gorilla", "granite", "guitar",
    "hammer", "harbour", "hedgehog", "hickory", "horizon", "hotel", "hurdle", "iceberg", "igloo", "indigo", "insect", "iris", "island",
    "ivory", "jaguar", "jasmine", "jelly", "jigsaw", "jungle", "kangaroo", "kayak", "kettle", "kitchen", "kiwi", "knuckle", "koala",
    "ladder", "lagoon", "lantern", "lattice", "laundry", "lavender", "lemon", "leopard", "library", "lilac", "lizard", "lobster",
    "locket", "lullaby", "macaw", "magnet", "marble", "meadow", "mermaid", "meteor", "mirror", "mitten", "monsoon", "mosaic", "muffin",
    "museum", "napkin", "nectar", "needle", "nephew", "nickel", "nomad", "nutmeg", "oasis", "ocean", "octopus", "olive", "onion", "opera",
    "orange", "orbit", "orchid", "osprey", "ostrich", "otter", "oxygen", "palace", "papaya", "parrot", "peanut", "pelican", "pencil",
    "pepper", "phantom", "piano", "picnic", "pigeon", "pilot", "plaza", "polka", "pony", "popcorn", "postman", "potato", "prairie",
    "pretzel", "pudding", "pumpkin", "puzzle", "pyramid", "quartz", "quiver", "rabbit", "raccoon", "radish", "raft", "rainbow", "raven",
    "ribbon", "rosemary", "rubber", "runway", "saddle", "saffron", "sailor", "sandal", "sapphire", "scarlet", "school", "scooter",
    "seagull", "shampoo", "sherbet", "silver", "siphon", "sketch", "skylark", "snowman", "soccer", "spider", "squirrel", "stable",
    "sunset", "swallow", "symbol", "syrup", "teapot", "temple", "thimble", "thunder", "toffee", "topaz", "tractor", "treasure", "trumpet",
    "tulip", "tunnel", "twilight", "unicorn", "vanilla", "velvet", "vessel", "viaduct", "village", "vinegar", "violin", "visitor",
    "volcano", "voyage", "waffle", "walnut", "whisker", "window", "wolf", "woodland", "yacht", "yellow", "yoghurt", "zebra", "zephyr",
    "zigzag", "zodiac",
];

/// Letters to insert, leave out or change to make `b` of `a` (Levenshtein 1966).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_far_apart_and_begin_differently() {
        assert_eq!(distance("kitten", "sitting"), 3);
        for (i, a) in WORDS.iter().enumerate() {
            assert!((4..=8).contains(&a.len()) && a.bytes().all(|b| b.is_ascii_lowercase()), "{a}");
            for b in &WORDS[..i] {
                assert!(distance(a, b) >= DISTANCE && a[..3] != b[..3], "{a}, {b}");
            }
        }
    }
}
