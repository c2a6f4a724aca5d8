"""The plugin with a fake engine: no torch, no vLLM. Run from Rust by tests/plugin.rs, or: python3 -m unittest"""

import json
import math
import os
import socket
import stat
import sys
import tempfile
import threading
import time
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import draftscope_plugin
from draftscope_plugin import lines, pieces, server, sglang, vllm_v1, vllm_v2


class Grid(list):
    """A list that has what the adapters ask of a tensor's shape."""

    def reshape(self, *_):
        return Grid(self)


class FakeOps:
    """tensors.py on lists."""

    class Stopwatch:
        def __init__(self, device):
            pass

        def now(self):
            return time.perf_counter()

        def micros(self, begin, end):
            return 0 if begin is None or end is None else int((end - begin) * 1e6)

    @staticmethod
    def rows_of(logits, which, temperatures, top, drafts):
        soft = []
        for row, heat in zip(which, temperatures):
            weights = [math.exp(x / heat) for x in logits[row]]
            soft.append([w / sum(weights) for w in weights])
        order = [sorted(range(len(row)), key=lambda i: -row[i])[:top] for row in soft]
        probs = [[row[i] for i in best] for row, best in zip(soft, order)]
        return order, probs, [soft[place][token] for place, token in drafts]

    @staticmethod
    def picked(probs, places, tokens):
        return [probs[place][token] for place, token in zip(places, tokens)]

    @staticmethod
    def picked_logits(logits, drafts):
        def soft(row, heat, token):
            weights = [math.exp(x / heat) for x in row]
            return weights[token] / sum(weights)

        return [soft(logits[state][step], heat, token) for state, step, token, heat in drafts]

    @staticmethod
    def take(values, index):
        return [values[at] for at in index]

    to_list = staticmethod(list)
    keep = staticmethod(lambda value: [list(row) if isinstance(row, list) else row for row in value])


class FakeServer:
    """Collects what is put; `follow` as a reader would narrow it."""

    def __init__(self, where, head, piece):
        self.head, self.steps, self.follow, self.notes = head, [], None, []

    def has_readers(self):
        return True

    def wants(self, request):
        return self.follow is None or self.follow in request

    def put(self, build, rounds=1):
        self.steps += build()

    def note(self, message):
        self.notes.append(message)


def runner_class(sampled, spoils=True):
    """A V1 runner that verifies: `sampled` is what its sampler gives."""

    class Runner:
        device = "cpu"
        vllm_config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(data_parallel_rank=0))
        speculative_config = types.SimpleNamespace(method="ngram", num_speculative_tokens=2)
        model_config = types.SimpleNamespace(
            model="/models/tiny/", get_vocab_size=lambda: 4, max_model_len=64, dtype="torch.float32", tokenizer=None)
        probs = None

        def __init__(self):
            self.input_batch = types.SimpleNamespace(
                num_reqs=2, req_ids=["cmpl-a-0-x", "cmpl-b-0-y"], num_tokens_no_spec=[10, 20], all_greedy=True,
                temperature_cpu=[0.0, 0.5])
            self.discard_request_mask = types.SimpleNamespace(np=[False, False])

        def load_model(self):
            return "loaded"

        def execute_model(self):
            return "ran"

        def propose_draft_token_ids(self):
            return [[1, 2]]

        def _get_spec_decode_draft_probs(self, metadata):
            return self.probs

        def _sample(self, logits, metadata):
            if spoils:  # the real sampler writes into logits
                for row in logits:
                    row[:] = [0.0] * len(row)
            return types.SimpleNamespace(sampled_token_ids=sampled)

    return Runner


def step_through(runner, metadata, logits):
    runner.propose_draft_token_ids()
    runner.execute_model()
    return runner._sample(logits, metadata)


METADATA = types.SimpleNamespace(num_draft_tokens=[2, 1], draft_token_ids=[1, 2, 3])


def logits():
    return [[float(i == best) * 5 for i in range(4)] for best in (1, 3, 0, 3, 2)]


class V1(unittest.TestCase):
    def observed(self, sampled, **change):
        runner_type = runner_class(sampled)
        made = []
        observer = vllm_v1.Observer(FakeOps, lambda *a: made.append(FakeServer(*a)) or made[0], where="x", top=3)
        self.assertTrue(vllm_v1.wrap([runner_type], observer))
        runner = runner_type()
        for name, value in change.items():
            setattr(runner, name, value)
        self.assertEqual(runner.load_model(), "loaded")
        return runner, made[0]

    def test_a_step_has_all_rows_as_they_were_before_the_sampler_wrote_into_them(self):
        runner, seen = self.observed([[1, 3, -1], [3, 2, -1]])
        out = step_through(runner, METADATA, logits())
        self.assertEqual(out.sampled_token_ids, [[1, 3, -1], [3, 2, -1]], "the engine's result is untouched")
        first, second = seen.steps
        self.assertEqual((first.request, first.drafted, first.committed, first.accepted), ("cmpl-a-0-x", [1, 2], [1, 3], 1))
        self.assertEqual((second.drafted, second.committed, second.accepted), ([3], [3, 2], 1))
        self.assertEqual([row[0][0] for row in first.rows], [1, 3, 0], "also the row after the rejected draft")
        self.assertAlmostEqual(first.p[0], math.exp(5) / (math.exp(5) + 3))
        self.assertEqual(first.q, [1.0, 1.0], "an n-gram draft is certain")
        self.assertEqual(first.base_len, 9)
        self.assertGreater(first.verify_us + first.draft_us + 1, 0)

    def test_probabilities_are_those_at_the_request_s_temperature(self):
        runner, seen = self.observed([[1, 3, -1], [3, 2, -1]])
        runner.input_batch.all_greedy = False
        step_through(runner, METADATA, logits())
        self.assertAlmostEqual(seen.steps[0].p[0], math.exp(5) / (math.exp(5) + 3))  # T = 0: those at 1
        self.assertAlmostEqual(seen.steps[1].p[0], math.exp(10) / (math.exp(10) + 3))  # T = 0.5

    def test_q_is_the_drafter_s_where_it_keeps_one(self):
        runner, seen = self.observed([[1, 3, -1], [3, 2, -1]], probs=[[0, 0.7, 0.3, 0], [0, 0, 0.4, 0.6], [0, 0, 0, 0.9]])
        step_through(runner, METADATA, logits())
        self.assertEqual(seen.steps[0].q, [0.7, 0.4])
        self.assertEqual(seen.steps[1].q, [0.9])

    def test_chunks_of_a_prompt_and_requests_that_nobody_reads_are_left_out(self):
        runner, seen = self.observed([[1, 3, -1], [3, 2, -1]])
        seen.follow = "cmpl-b"
        step_through(runner, METADATA, logits())
        self.assertEqual([step.request for step in seen.steps], ["cmpl-b-0-y"])
        self.assertEqual([row[0][0] for row in seen.steps[0].rows], [3, 2], "its own rows")
        runner.discard_request_mask.np = [False, True]
        step_through(runner, METADATA, logits())
        self.assertEqual(len(seen.steps), 1)

    def test_a_step_without_drafts_is_a_round_of_one_token(self):
        runner, seen = self.observed([[1], [3]])
        step_through(runner, None, logits())
        self.assertEqual([(step.drafted, step.committed, len(step.rows)) for step in seen.steps], [([], [1], 1), ([], [3], 1)])

    def test_whatever_fails_in_the_plugin_the_engine_goes_on(self):
        runner, seen = self.observed([[1, 3, -1], [3, 2, -1]])
        runner.input_batch.req_ids = None
        out = step_through(runner, METADATA, logits())
        self.assertEqual(out.sampled_token_ids[0][0], 1)
        self.assertEqual(seen.steps, [])

    def test_a_runner_without_the_known_methods_is_left_alone(self):
        class Other:
            def _sample(self):
                pass

        before = Other._sample
        self.assertFalse(vllm_v1.wrap([Other], vllm_v1.Observer(FakeOps, FakeServer, where="x")))
        self.assertIs(Other._sample, before)

    def test_other_ranks_open_no_socket(self):
        made = []
        runner_type = runner_class([[1]])
        runner_type.vllm_config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(data_parallel_rank=1))
        vllm_v1.wrap([runner_type], vllm_v1.Observer(FakeOps, lambda *a: made.append(a), where="x"))
        runner = runner_type()
        runner.load_model()
        step_through(runner, None, logits())
        self.assertEqual(made, [])


def v2_batch(prefilling=(False, False)):
    """Two requests: two drafts behind token 9, and a request without drafts; shapes as in InputBatch of vLLM 0.32."""
    return types.SimpleNamespace(
        num_reqs=2, req_ids=["r1", "r2"], idx_mapping_np=[5, 3], is_prefilling_np=list(prefilling),
        input_ids=[9, 1, 2, 7], positions=[40, 41, 42, 11], logits_indices=[0, 1, 2, 3], cu_num_logits=[0, 3, 4])


def v2_classes(sampled, counts):
    """A runner and samplers that write into the logits, as the engine's may."""
    out = types.SimpleNamespace(sampled_token_ids=sampled, num_sampled=counts)

    class Sampler:
        sampling_states = types.SimpleNamespace(temperature=types.SimpleNamespace(np=[1.0] * 8))

        def __call__(self, logits, input_batch):
            logits[:] = [[0.0] * len(row) for row in logits]
            return out

    class RejectionSampler:
        def __call__(self, logits, input_batch, draft_logits=None, invalid_drafts=None):
            logits[:] = [[0.0] * len(row) for row in logits]
            return out

    class Speculator:
        def propose(self):
            return "drafts"

    class Runner:
        sampler, speculator, device = Sampler(), Speculator(), "cpu"
        rejection_sampler, batch_sharder = RejectionSampler(), None
        model_config = types.SimpleNamespace(
            model="org/model", max_model_len=64, dtype="torch.bfloat16", get_vocab_size=lambda: 4, tokenizer=None)
        speculative_config = types.SimpleNamespace(
            method="eagle3", num_speculative_tokens=2, rejection_sample_method="block")
        vllm_config = types.SimpleNamespace(parallel_config=types.SimpleNamespace())

        def load_model(self):
            return "loaded"

        def execute_model(self):
            return "state"

        def sample(self, logits, batch, drafts=None):
            return self.rejection_sampler(logits, batch, drafts) if drafts != "none" else self.sampler(logits, batch)

    return Runner, (Sampler, RejectionSampler)


class V2(unittest.TestCase):
    def observed(self, sampled, counts):
        made = []
        runner_class, samplers = v2_classes(sampled, counts)
        observer = vllm_v2.Observer(FakeOps, lambda *a: made.append(FakeServer(*a)) or made[0], where="x", top=2)
        self.assertTrue(vllm_v2.wrap(runner_class, samplers, observer))
        runner = runner_class()
        self.assertEqual((runner.load_model(), runner.execute_model()), ("loaded", "state"))
        return runner, made[0]

    def rows(self):
        return [[1.0, 5.0, 0.0, 0.0], [0.0, 1.0, 2.0, 6.0], [4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]]

    def test_steps_have_their_drafts_rows_and_tokens(self):
        runner, served = self.observed([[1, 3, 0], [3, 0, 0]], [2, 1])
        self.assertEqual(runner.sample(self.rows(), v2_batch()).num_sampled, [2, 1])
        first, second = served.steps
        self.assertEqual((first.request, first.base_len, first.drafted), ("r1", 40, [1, 2]))
        self.assertEqual((first.committed, first.accepted, len(first.rows)), ([1, 3], 1, 3))
        self.assertEqual([row[0][0] for row in first.rows], [1, 3, 0], "as they were before the sampler wrote")
        self.assertEqual((first.q, len(first.p)), ([1.0, 1.0], 2))
        self.assertEqual((second.request, second.drafted, second.committed, len(second.rows)), ("r2", [], [3], 1))
        self.assertEqual(served.head()["settings"]["rule"], "block")

    def test_q_is_taken_of_the_drafter_s_logits_at_the_request_s_temperature(self):
        runner, served = self.observed([[1, 3, 0], [3, 0, 0]], [2, 1])
        drafts = [[[0.0] * 4, [0.0] * 4] for _ in range(8)]
        drafts[5][1] = [0.0, 0.0, math.log(3.0), 0.0]
        runner.sample(self.rows(), v2_batch(), drafts)
        self.assertEqual([round(q, 6) for q in served.steps[0].q], [0.25, 0.5])

    def test_parts_of_a_prompt_and_dummy_batches_are_left_out(self):
        runner, served = self.observed([[2, 0, 0], [3, 0, 0]], [1, 0])
        runner.sample(self.rows(), v2_batch((True, True)))
        (only,) = served.steps
        self.assertEqual((only.request, only.drafted, only.committed, len(only.rows)), ("r1", [], [2], 1))
        runner.sampler(self.rows(), v2_batch())
        self.assertEqual(len(served.steps), 1, "nobody asked for this batch")
        runner.sample(self.rows(), v2_batch((True, True)), "none")
        self.assertEqual(len(served.steps), 2, "steps without drafts go through the plain sampler")

    def test_an_unknown_runner_is_left_alone(self):
        class Old:
            def load_model(self):
                return "loaded"

        before = Old.load_model
        self.assertFalse(vllm_v2.wrap(Old, (), None))
        self.assertIs(Old.load_model, before)

    def test_whatever_fails_in_the_plugin_the_engine_goes_on(self):
        runner, served = self.observed([[1]], [1])
        broken = types.SimpleNamespace(num_reqs=1, req_ids=["r1"])
        self.assertEqual(runner.sample(self.rows(), broken).num_sampled, [1])
        self.assertEqual(served.steps, [])


class Others(unittest.TestCase):
    def test_sglang_sends_chains(self):
        made = []
        observer = sglang.Observer(FakeOps, lambda *a: made.append(FakeServer(*a)) or made[0], where="x", top=2)
        verify = types.SimpleNamespace(draft_token_num=3, topk=1, draft_token=Grid([0, 1, 2]))
        batch = types.SimpleNamespace(
            reqs=[types.SimpleNamespace(rid="r1", origin_input_ids=[0] * 4, output_ids=[5])],
            sampling_info=types.SimpleNamespace(is_all_greedy=True))
        result = types.SimpleNamespace(next_token_logits=logits())
        out = observer.around(lambda *a: ([1, 3, 0], [1], [[0, 1, -1]]), verify, batch, result)
        self.assertEqual(out[0], [1, 3, 0])
        (step,) = made[0].steps
        self.assertEqual((step.drafted, step.committed, step.accepted, len(step.rows)), ([1, 2], [1, 3], 1, 3))

    def test_nothing_happens_without_the_variable(self):
        os.environ.pop("DRAFTSCOPE_SOCKET", None)
        draftscope_plugin.register_vllm()
        draftscope_plugin.register_sglang()
        self.assertNotIn("vllm.v1.worker.gpu_model_runner", sys.modules)


class Pieces(unittest.TestCase):
    def tokenizer(self, names, special=()):
        return types.SimpleNamespace(
            all_special_ids=special, get_vocab=lambda: {name: i for i, name in enumerate(names)},
            convert_ids_to_tokens=lambda token: names[token] if token < len(names) else None)

    def test_byte_level_tokens_are_bytes(self):
        piece = pieces.Pieces(lambda: self.tokenizer(["<|end|>", "Ġthe", "Ã©", "Ã", "Ċ"], special=[0]))
        self.assertEqual(piece(0), {"id": 0, "text": "<|end|>", "special": True})
        self.assertEqual(piece(1), {"id": 1, "text": " the"})
        self.assertEqual(piece(2), {"id": 2, "text": "é"})
        self.assertEqual(piece(3), {"id": 3, "bytes": [0xC3]})
        self.assertEqual(piece(4), {"id": 4, "text": "\n"})
        self.assertEqual(piece(9), {"id": 9, "text": ""})
        self.assertEqual(piece(-1), {"id": None, "text": ""})

    def test_sentencepiece_tokens_have_spaces_and_bytes(self):
        piece = pieces.Pieces(lambda: self.tokenizer(["▁the", "<0xE2>", "<0x0A>"]))
        self.assertEqual([piece(0), piece(1), piece(2)],
                         [{"id": 0, "text": " the"}, {"id": 1, "bytes": [0xE2]}, {"id": 2, "text": "\n"}])

    def test_a_tokenizer_that_fails_leaves_ids(self):
        def fails():
            raise OSError("no such model")

        self.assertEqual(pieces.Pieces(fails)(7), {"id": 7, "text": ""})


def read_lines(connection, count):
    text = b""
    connection.settimeout(10)
    while text.count(b"\n") < count:
        got = connection.recv(65536)
        if not got:
            break
        text += got
    return [json.loads(line) for line in text.split(b"\n") if line]


def connect(where):
    family, at = server.address(where)
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.connect(at)
    return connection


def a_step(request="r", drafted=(1, 2), committed=(1, 3)):
    rows = [[(1, 0.9), (2, 0.05)], [(3, 0.6)], [(4, 1.0)]][: len(drafted) + 1]
    return lines.Step(request=request, base_len=5, drafted=list(drafted), committed=list(committed), rows=rows,
                      p=[0.9, 0.1], q=[1.0, 1.0], draft_us=10, verify_us=20, sample_us=3)


class Sockets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "s")
        self.head = lines.header(engine="fake", engine_version="1", model={"name": "m", "vocab": 4},
                                 drafter={"kind": "ngram", "name": "ngram"}, draft_len=2)

    def tearDown(self):
        self.folder.cleanup()

    def serve(self, where=None, size=1024):
        return server.Server(where or self.path, lambda: self.head, pieces.Pieces(), size)

    def wait(self, serving, readers=1):
        for _ in range(500):
            if len(serving._readers) == readers:
                return
            time.sleep(0.01)
        self.fail("no reader arrived")

    def test_the_socket_is_private_and_a_dead_one_is_replaced(self):
        self.serve()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        with self.assertRaisesRegex(OSError, "another process listens"):
            server.listen(self.path)
        dead = os.path.join(self.folder.name, "dead")
        server.listen(dead).close()
        self.assertTrue(os.path.exists(dead), "a process that was killed leaves it")
        server.listen(dead).close()
        with open(os.path.join(self.folder.name, "file"), "w"):
            pass
        with self.assertRaisesRegex(OSError, "is no socket"):
            server.listen(os.path.join(self.folder.name, "file"))

    def test_only_loopback_addresses_are_served(self):
        self.assertEqual(server.address("tcp:127.0.0.1:7")[1], ("127.0.0.1", 7))
        self.assertEqual(server.address("unix:/a/b")[1], "/a/b")
        self.assertEqual(server.address("/a:7/b")[1], "/a:7/b")
        for outside in ("0.0.0.0:7", "tcp:10.0.0.1:7", "tcp:example.org:7"):
            with self.assertRaisesRegex(ValueError, "loopback"):
                server.address(outside)

    def test_a_reader_gets_the_header_and_then_rounds(self):
        serving = self.serve()
        self.assertFalse(serving.has_readers())
        with connect(self.path) as reader:
            self.wait(serving)
            serving.put(lambda: [a_step(), a_step()])
            got = read_lines(reader, 1 + 2 * 6)
        self.assertEqual(got[0]["type"], "started")
        kinds = ["round_started", "drafted", "drafted", "scored", "verified", "committed"]
        self.assertEqual([line["type"] for line in got[1:]], kinds * 2)
        self.assertEqual([line["round"] for line in got[1:]], [1] * 6 + [2] * 6)
        self.assertEqual([line["seq"] for line in got], list(range(13)))
        judgements = got[5]["judgements"]
        self.assertEqual([one["outcome"] for one in judgements], ["accepted", "rejected"])
        self.assertEqual((got[5]["next"], got[5]["next_kind"]), (3, "recovered"))
        self.assertEqual(got[4]["rows"][0]["tail"], 0.05)
        for _ in range(500):  # it leaves, and nothing is computed any longer
            if not serving.has_readers():
                return
            serving.put(lambda: [a_step()])
            time.sleep(0.01)
        self.fail("the reader is gone, and still served")

    def test_a_reader_may_narrow_the_requests(self):
        serving = self.serve()
        with connect(self.path) as reader:
            self.wait(serving)
            reader.sendall(b'nonsense\n{"follow":"mine"}\n')
            for _ in range(500):
                if not serving.wants("other"):
                    break
                time.sleep(0.01)
            self.assertTrue(serving.wants("cmpl-mine-0"))
            serving.put(lambda: [a_step("other"), a_step("cmpl-mine-0")])
            got = read_lines(reader, 7)
        self.assertEqual({line["request"] for line in got[1:]}, {"cmpl-mine-0"})

    def test_tcp_works_and_a_late_reader_reads_the_notices(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            where = "127.0.0.1:%d" % free.getsockname()[1]
        serving = self.serve(where)
        serving.note("something to know")
        with connect(where) as reader:
            got = read_lines(reader, 2)
        self.assertEqual(got[1]["message"], "something to know")

    def test_a_full_queue_drops_and_counts_and_never_waits(self):
        serving = self.serve(size=2)
        gate = threading.Event()
        with connect(self.path) as reader:
            self.wait(serving)

            def slow():
                gate.wait(10)
                return [a_step()]

            began = time.monotonic()
            for _ in range(50):
                serving.put(slow, 3)
            self.assertLess(time.monotonic() - began, 1.0)
            gate.set()
            got = read_lines(reader, 1 + 2 * 6 + 1)
            drops = [line for line in got if line["type"] == "dropped"]
        self.assertTrue(drops and drops[-1]["rounds"] >= 47 * 3, drops)

    def test_a_reader_that_takes_nothing_is_disconnected(self):
        serving = self.serve()
        big = [[(token, 1e-6) for token in range(4000)]] * 3
        with connect(self.path):
            self.wait(serving)
            step = a_step()
            step.rows = big
            began = time.monotonic()
            while serving.has_readers() and time.monotonic() - began < 20:
                serving.put(lambda: [step])
                time.sleep(0.01)
        self.assertFalse(serving.has_readers())

    def test_numbers_are_finite_and_in_range(self):
        step = a_step()
        step.p, step.q = [float("nan"), 1.5], [float("inf"), -1.0]
        step.rows = [[(1, 1.0000001), (2, float("nan"))]]
        text = json.dumps(lines.of_step(step, 1, pieces.Pieces()), allow_nan=False)
        self.assertNotIn("NaN", text)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--serve":  # for draftscope's own test: serve PATH until the input ends
        head = lines.header(engine="fake", engine_version="1", model={"name": "m", "vocab": 4},
                            drafter={"kind": "ngram", "name": "ngram"}, draft_len=2)
        serving = server.Server(sys.argv[2], lambda: head, pieces.Pieces())
        print("LISTENING", flush=True)
        for line in sys.stdin:
            serving.put(lambda: [a_step(), a_step(drafted=(), committed=(7,))])
    else:
        unittest.main()
