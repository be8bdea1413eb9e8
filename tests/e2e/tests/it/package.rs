//! What is installed: the OCI archive, looked at by skopeo and run in a chroot, and systemd's unit.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::{Running, agent_image, program, tool};
use serde_json::Value;
use tokio::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Builds the archive of these.
fn build(program: &Path, image: &Path, out: &Path) {
    let builder = text(&root().join("deploy/oci/build"));
    tool(&builder, &["--program", &text(program), "--agent-image", &text(image), "--out", &text(out)]).unwrap();
}

#[tokio::test]
async fn the_archive_is_a_sound_image_whose_files_are_all_that_the_program_needs() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("metamorph.tar");
    build(&program("metamorph").unwrap(), &agent_image().unwrap(), &archive);
    let reference = format!("oci-archive:{}", archive.display());
    let config: Value = serde_json::from_str(&tool("skopeo", &["inspect", "--config", &reference]).unwrap()).unwrap();
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/metamorph"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    // Copying checks sizes and digests of all that the manifest names.
    let copied = folder.path().join("copied");
    tool("skopeo", &["copy", "--quiet", "--insecure-policy", &reference, &format!("dir:{}", copied.display())])
        .unwrap();
    let manifest: Value = serde_json::from_slice(&std::fs::read(copied.join("manifest.json")).unwrap()).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1, "{manifest}");
    let layer = copied.join(layers[0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
    let listed = tool("tar", &["--numeric-owner", "-tvf", &text(&layer)]).unwrap();
    assert!(
        listed.lines().any(|l| l.starts_with("drwx------ 65532/65532") && l.ends_with("var/lib/metamorph/")),
        "{listed}"
    );
    assert!(listed.contains("usr/share/doc/libc6/copyright"), "{listed}");

    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    tool("tar", &["--no-same-owner", "-xf", &text(&layer), "-C", &text(&files)]).unwrap();
    let inside = ["--user", "--map-root-user", "--root", &text(&files), "/usr/bin/metamorph"].map(ToOwned::to_owned);
    let mut version = inside.to_vec();
    version.push("--version".to_owned());
    let said = tool("unshare", &version.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert_eq!(said.trim(), "metamorph 0.1.0");
    let mut command = Command::new("unshare");
    command.args(inside).args(["up", "--data", "/tmp/data", "--health-listen", "127.0.0.1:0"]).env_clear();
    for value in config["config"]["Env"].as_array().unwrap() {
        let (name, value) = value.as_str().unwrap().split_once('=').unwrap();
        command.env(name, value);
    }
    command.args(["--api-listen", "127.0.0.1:0", "--media-listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"]);
    let unshare = PathBuf::from(tool("sh", &["-c", "command -v unshare"]).unwrap().trim());
    command.env("PATH", format!("{}:/usr/bin", unshare.parent().unwrap().display()));
    let mut server = Running::start(command, &folder.path().join("log")).unwrap();
    server.wait_logged("Metamorph is up", 60).await.unwrap();
    server.stop().await.unwrap();
}

#[test]
fn images_for_further_architectures_stand_beside_the_first_one() {
    let (image, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(image.path().join("manifest.json"), "{}").unwrap();
    let (folder, archive) = (text(image.path()), out.path().join("archive"));
    let builder = text(&root().join("deploy/oci/build"));
    let images = ["--agent-image", &folder, "--agent-image", &folder];
    tool(&builder, &[&["--program", "/usr/bin/env", "--out", &text(&archive)][..], &images].concat()).unwrap();
    let reference = format!("oci-archive:{}", archive.display());
    let config: Value = serde_json::from_str(&tool("skopeo", &["inspect", "--config", &reference]).unwrap()).unwrap();
    let both = "METAMORPH_AGENT_IMAGE=/usr/share/metamorph/agent-image:/usr/share/metamorph/agent-image-2";
    assert!(config["config"]["Env"].as_array().unwrap().contains(&serde_json::json!(both)), "{config}");
    let copied = out.path().join("copied");
    tool("skopeo", &["copy", "--quiet", "--insecure-policy", &reference, &format!("dir:{}", copied.display())])
        .unwrap();
    let manifest: Value = serde_json::from_slice(&std::fs::read(copied.join("manifest.json")).unwrap()).unwrap();
    let layer = copied.join(manifest["layers"][0]["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap());
    let listed = tool("tar", &["-tf", &text(&layer)]).unwrap();
    for name in ["agent-image", "agent-image-2"] {
        let wanted = format!("usr/share/metamorph/{name}/manifest.json");
        assert!(listed.lines().any(|line| line == wanted), "{listed}");
    }
}

#[test]
fn the_same_files_make_the_same_archive() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("manifest.json"), "{}").unwrap();
    let out = tempfile::tempdir().unwrap();
    let built = ["a", "b"].map(|name| {
        // Any program will do.
        build(Path::new("/usr/bin/env"), folder.path(), &out.path().join(name));
        std::fs::read(out.path().join(name)).unwrap()
    });
    assert!(built[0] == built[1], "two archives of the same files differ");
}

#[tokio::test]
async fn systemds_unit_is_sound_and_starts_the_server_that_tells_when_it_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(root().join("deploy/systemd/metamorph.service")).unwrap();
    let program = text(&program("metamorph").unwrap());
    let local = unit.replace("/usr/bin/metamorph", &program).replace("/usr/share/doc/", "/nonexistent/");
    let verified = folder.path().join("metamorph.service");
    std::fs::write(&verified, &local).unwrap();
    let output = std::process::Command::new("systemd-analyze").arg("verify").arg(&verified).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("metamorph.service"), "{said}");

    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let data = text(&folder.path().join("data"));
    let arguments = line.split(' ').skip(1).filter(|word| !word.starts_with('$')).map(|word| match word {
        "/var/lib/metamorph" => data.clone(),
        "/usr/share/metamorph/agent-image" => text(&agent_image().unwrap()),
        other => other.to_owned(),
    });
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(&program);
    command.args(arguments).env("NOTIFY_SOCKET", &socket);
    for flag in ["--api-listen", "--media-listen", "--agent-listen", "--health-listen"] {
        command.args([flag, "127.0.0.1:0"]);
    }
    let mut server = Running::start(command, &folder.path().join("log")).unwrap();
    let mut message = [0; 64];
    let count = manager.recv(&mut message).unwrap();
    assert_eq!(&message[..count], b"READY=1");
    server.stop().await.unwrap();
}
