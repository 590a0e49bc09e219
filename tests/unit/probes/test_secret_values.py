"""What must not be written down, and what must not be mistaken for it. All values are made up."""

import pytest

from outlive.probes.secret_values import looks_secret

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG"


@pytest.mark.parametrize(
    "name, value",
    [
        ("WANDB_API_KEY", "0" * 40),
        ("HF_TOKEN", "x"),
        ("HFTOKEN", "abc"),
        ("OPENAI_APIKEY", "abc"),
        ("openaiApiKey", "abc"),
        ("AWS_SECRET_ACCESS_KEY", "/abc+def"),
        ("AWS_ACCESS_KEY_ID", "anything"),
        ("JUPYTER_PASSWORD", "1234"),
        ("RCLONE_CONFIG_S3_PASS", "x"),
        ("MYSQL_PWD", "x"),
        ("GITHUB_PAT", "x"),
        ("SSH_PRIVATE_KEY", "/x"),
        ("ANYTHING", "hf_" + LETTERS),
        ("ANYTHING", "sk-proj-" + LETTERS),
        ("ANYTHING", "ghp_" + LETTERS),
        ("ANYTHING", "AKIA" + "ABCDEFGHIJKLMNOP"),
        ("ANYTHING", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig"),
        ("ANYTHING", "-----BEGIN OPENSSH PRIVATE KEY-----"),
        ("http_proxy", "http://me:pw@proxy:3128"),
        ("DATABASE_URL", "postgres://u:p@db/x"),
        ("UPLOAD", "https://store/x?sig=abcdefghij"),
        ("ANYTHING", LETTERS + "Xy9"),
    ],
)
def test_secret(name, value):
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/opt/conda/bin"),
        ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"),
        ("PWD", "/root"),
        ("HF_HOME", "/data/hf"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "512"),
        ("USE_AUTH", "true"),
        ("HF_TOKEN", ""),
        ("PUBLIC_KEY", "ssh-ed25519 AAAA me@here"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp.json"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        ("NVIDIA_VISIBLE_DEVICES", "GPU-89fdc1e1-18b2-f499-c12b-82bcb9bfb3fa"),
        ("CUDA_VERSION", "12.4.1"),
        ("NV_CUDNN_PACKAGE", "libcudnn8=8.9.6.50-1+cuda12.2"),
        ("GIT_COMMIT", "d670460b4b4aece5915caf5c68d12f560a9fe3e4"),
        ("KEYBOARD_LAYOUT", "us"),
        ("http_proxy", "http://proxy.example:3128"),
        ("LS_COLORS", "rs=0:di=01;34:ln=01;36:mh=00:pi=40;33"),
        ("OMP_NUM_THREADS", "8"),
    ],
)
def test_not_secret(name, value):
    assert not looks_secret(name, value)
