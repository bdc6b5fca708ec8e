//! The last output of the demo: commands that work when pasted, in lines that fit a terminal of 80 columns.
use std::path::Path;

/// Columns of a terminal by default; the text fits into them.
const COLUMNS: usize = 80;

/// The values in the commands.
pub(super) struct NextSteps {
    /// The program as a shell finds it: see [`shell_name`].
    pub program: String,
    /// The option with the configuration file of the demo, if it has one.
    pub config: Option<String>,
    /// The address of the service, such as `http://127.0.0.1:8080`.
    pub base: String,
    /// Whether the commands of operators find that address by themselves.
    pub is_default_address: bool,
    pub topic: String,
    /// Path of the actor that the demo kills.
    pub actor: String,
    /// A token with the role USER, where the commands would mint none that the demo accepts.
    pub user_token: Option<String>,
    /// A token with the role ADMIN. It is longer than a line.
    pub admin_token: String,
    pub process: u32,
}

impl NextSteps {
    /// The text, without a line break at its end.
    pub(super) fn text(&self) -> String {
        let Self { base, topic, user_token, admin_token, process, .. } = self;
        let mint = || format!("$({})", self.program_command("token mint").join(" "));
        let bearer = format!("-H \"Authorization: Bearer {}\"", user_token.clone().unwrap_or_else(mint));
        let body = "-d '{\"items\":[{\"productName\":\"Tea\",\"quantity\":2,\"price\":\"2.50\"}]}'";
        let create =
            command(&[&*format!("curl -s {base}/orders"), &bearer, "-H 'Content-Type: application/json'", body]);
        let mut tail = self.program_command(&format!("topic tail {topic}"));
        tail.push("--from-beginning".to_owned());
        let tail = command(&tail);
        let (kill, tree) = (self.actors_command(&format!("kill {}", self.actor)), self.actors_command("tree"));
        [
            "\nPlace an order, in another terminal in this folder, and read its event:",
            &create,
            &tail,
            "\nBreak it: an actor restarts, and after kill -9 nothing is lost or sent twice:",
            &kill,
            &tree,
            &format!("  kill -9 {process}"),
            "\nLook at it:",
            &format!("  console   {base}/console"),
            &format!("  API       {base}/docs"),
            &format!("  metrics   {base}/metrics"),
            "\nThe console asks for a token of an administrator:",
            &format!("  {admin_token}"),
        ]
        .join("\n")
    }

    fn actors_command(&self, verb: &str) -> String {
        let mut parts = self.program_command(&format!("actors {verb}"));
        parts.extend(self.user_token.as_ref().map(|_| format!("--token {}", self.admin_token)));
        parts.extend((!self.is_default_address).then(|| format!("--url {}", self.base)));
        command(&parts)
    }

    /// The parts of a command of this program, which reads the configuration of the demo.
    fn program_command(&self, verb: &str) -> Vec<String> {
        std::iter::once(format!("{} {verb}", self.program)).chain(self.config.clone()).collect()
    }
}

/// An indented command, continued on the next line where its next part would not fit.
fn command(parts: &[impl AsRef<str>]) -> String {
    let (mut text, mut column) = (String::from(" "), 1);
    for (index, part) in parts.iter().map(AsRef::as_ref).enumerate() {
        // A line that is continued ends with a space and a backslash.
        let room = if index + 1 < parts.len() { COLUMNS - 2 } else { COLUMNS };
        if index > 0 && column + 1 + part.chars().count() > room {
            text += " \\\n   ";
            column = 3;
        }
        text += " ";
        text += part;
        column += 1 + part.chars().count();
    }
    text
}

/// How a shell in this folder finds the program: by its name if `path` leads to it, else by its path, quoted where that is needed.
pub(super) fn shell_name(program: &Path, folder: &Path, path: &str) -> String {
    let name = program.file_name().unwrap_or_default();
    let first = std::env::split_paths(path).map(|folder| folder.join(name)).find(|candidate| candidate.is_file());
    if first.is_some_and(|found| found.canonicalize().ok() == program.canonicalize().ok()) {
        return name.to_string_lossy().into_owned();
    }
    let shown = match program.strip_prefix(folder) {
        Ok(below) if below.components().count() > 1 => below.display().to_string(),
        Ok(below) => format!("./{}", below.display()),
        Err(_) => program.display().to_string(),
    };
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    if shown.chars().all(is_plain) { shown } else { format!("'{}'", shown.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(base: &str, is_default_address: bool) -> NextSteps {
        NextSteps {
            program: "target/demo/posthaste".to_owned(),
            config: None,
            base: base.to_owned(),
            is_default_address,
            topic: "order.events".to_owned(),
            actor: "/relay/partition-worker-7".to_owned(),
            user_token: None,
            admin_token: "t".repeat(200),
            process: 4_194_304,
        }
    }

    #[test]
    fn every_line_but_the_token_fits_a_terminal() {
        for text in [steps("http://127.0.0.1:8080", true).text(), steps("http://127.0.0.1:65535", false).text()] {
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > COLUMNS).collect();
            assert_eq!(wide, [format!("  {}", "t".repeat(200))]);
        }
    }

    #[test]
    fn a_long_command_is_continued_and_a_short_one_is_not() {
        let text = steps("http://127.0.0.1:8080", true).text();

        assert!(
            text.contains("  curl -s http://127.0.0.1:8080/orders \\\n    -H \"Authorization: Bearer $("),
            "{text}"
        );
        assert!(text.contains("\n  target/demo/posthaste actors kill /relay/partition-worker-7\n"), "{text}");
    }

    #[test]
    fn commands_name_an_address_that_they_would_not_find() {
        let text = steps("http://127.0.0.1:4711", false).text();

        assert_eq!(text.matches("--url http://127.0.0.1:4711").count(), 2, "{text}");
    }

    #[test]
    fn every_command_names_the_configuration_file() {
        let text =
            NextSteps { config: Some("--config my.toml".to_owned()), ..steps("http://127.0.0.1:1", false) }.text();

        assert_eq!(text.matches("--config my.toml").count(), 4, "{text}");
        assert!(text.contains("token mint --config my.toml)\""), "{text}");
    }

    #[test]
    fn program_is_named_as_the_shell_finds_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("target/demo/posthaste");
        std::fs::create_dir_all(program.parent().expect("a folder")).expect("a folder");
        std::fs::write(&program, "").expect("a file");
        let on_path = program.parent().expect("a folder").display().to_string();
        let spaced = Path::new("/opt/my tools/posthaste");

        assert_eq!(shell_name(&program, folder.path(), "/usr/bin"), "target/demo/posthaste");
        assert_eq!(shell_name(&program, program.parent().expect("a folder"), "/usr/bin"), "./posthaste");
        assert_eq!(shell_name(&program, Path::new("/nowhere"), ""), program.display().to_string());
        assert_eq!(shell_name(&program, folder.path(), &on_path), "posthaste");
        assert_eq!(shell_name(spaced, folder.path(), ""), "'/opt/my tools/posthaste'");
    }
}
