// A preload library for llama-server: wraps the functions through which it verifies drafts, and sends every round.
//
//   DRAFTSCOPE_SOCKET=PATH LD_PRELOAD=libdraftscope-tap.so llama-server …
//
// Off unless DRAFTSCOPE_SOCKET is set. Invariant: the engine's function is called exactly once, with its own arguments, and
// nothing is computed while nobody reads.
#include "sender.h"
#include "signatures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <map>

namespace {

void say(const std::string & sentence) { fprintf(stderr, "draftscope: %s\n", sentence.c_str()); }

template <typename Fn> Fn * next(const char * name) { return (Fn *) dlsym(RTLD_NEXT, name); }

// Functions of libllama, found at run time so that the library can be preloaded into any program.
struct Llama {
    decltype(&llama_get_logits_ith) logits = next<decltype(llama_get_logits_ith)>("llama_get_logits_ith");
    decltype(&llama_get_model) model = next<decltype(llama_get_model)>("llama_get_model");
    decltype(&llama_model_get_vocab) vocab = next<decltype(llama_model_get_vocab)>("llama_model_get_vocab");
    decltype(&llama_vocab_n_tokens) tokens = next<decltype(llama_vocab_n_tokens)>("llama_vocab_n_tokens");
    decltype(&llama_vocab_is_control) is_control = next<decltype(llama_vocab_is_control)>("llama_vocab_is_control");
    decltype(&llama_token_to_piece) piece = next<decltype(llama_token_to_piece)>("llama_token_to_piece");
    decltype(&llama_model_desc) desc = next<decltype(llama_model_desc)>("llama_model_desc");
    decltype(&llama_n_ctx) context = next<decltype(llama_n_ctx)>("llama_n_ctx");
};

struct Request {
    std::string id;
    float temperature;
};

struct Tap {
    Llama llama;
    AcceptFn * accept = next<AcceptFn>(ACCEPT);
    AcceptRejectionFn * accept_rejection = next<AcceptRejectionFn>(ACCEPT_REJECTION);
    SampleFn * sample = next<SampleFn>(SAMPLE);
    InitFn * init = next<InitFn>(INIT);
    FreeFn * release = next<FreeFn>(FREE);
    DecodeFn * decode = next<DecodeFn>(DECODE);
    ProcessFn * process = next<ProcessFn>(PROCESS);
    Sender sender;
    bool is_on = false;
    size_t top = 8;

    std::mutex mutex;  // of what follows
    std::map<const common_sampler *, Request> requests;
    uint64_t count = 0;
    const llama_vocab * vocab = nullptr;
    const llama_context * target = nullptr;
    uint64_t target_began = 0, draft_began = 0;

    Tap() {
        const char * where = getenv("DRAFTSCOPE_SOCKET");
        if (where == nullptr || *where == 0 || llama.logits == nullptr) {
            return;  // not asked for, or another program, such as the shell that starts the server
        }
        const std::string missing = this->missing();
        if (!missing.empty()) {
            say("this llama.cpp does not export " + missing + " as build 11434 does (a static build, an older version such as b10434, "
                "or a newer one whose functions have other arguments); nothing is observed");
            return;
        }
        if (const char * asked = getenv("DRAFTSCOPE_TOP")) {
            top = std::min<size_t>(32, std::max<size_t>(1, strtoul(asked, nullptr, 10)));
        }
        const std::string failed = sender.start(where, [this](int32_t id) { return text(id); });
        if (!failed.empty()) {
            say("nothing is observed: " + failed);
            return;
        }
        is_on = true;
        sender.describe({});
        say(std::string("serving the rounds of llama-server at ") + where);
    }

    // The functions that this program does not export with the arguments that are known, by name.
    std::string missing() const {
        const std::pair<bool, const char *> all[] = {
            {accept != nullptr, "common_sampler_sample_and_accept_n"},
            {accept_rejection != nullptr, "common_sampler_sample_and_accept_n_rejection"},
            {sample != nullptr, "common_sampler_sample"},
            {init != nullptr, "common_sampler_init"},
            {release != nullptr, "common_sampler_free"},
            {decode != nullptr, "llama_decode"},
            {process != nullptr, "llama_process"},
        };
        std::string names;
        for (const auto & [is_there, name] : all) {
            if (!is_there) {
                names += (names.empty() ? "" : ", ") + std::string(name);
            }
        }
        return names;
    }

    // Times: when the target's pass began, and when a pass of another context, the drafter's, began before it.
    void pass_begins(const llama_context * ctx) {
        if (!is_on || !sender.has_readers()) {
            return;
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (ctx == target) {
            target_began = now_us();
        } else if (target != nullptr && draft_began == 0) {
            draft_began = now_us();
        }
    }

    std::pair<std::string, bool> text(int32_t id) {
        if (vocab == nullptr || id < 0 || id >= llama.tokens(vocab)) {
            return {"", false};
        }
        std::string out(64, 0);
        int len = llama.piece(vocab, id, out.data(), (int) out.size(), 0, true);
        if (len < 0) {
            out.resize(std::min(-len, 1024));
            len = llama.piece(vocab, id, out.data(), (int) out.size(), 0, true);
        }
        out.resize(std::max(len, 0));
        return {out, llama.is_control(vocab, id)};
    }

    // The request of a sampler, and what is known of the engine by now.
    Request request(const common_sampler * sampler, llama_context * ctx, bool verifies) {
        std::lock_guard<std::mutex> lock(mutex);
        target = verifies || target == nullptr ? ctx : target;
        if (vocab == nullptr) {
            const llama_model * model = llama.model(ctx);
            vocab = llama.vocab(model);
            char name[128] = "";
            llama.desc(model, name, sizeof name);
            sender.describe({name, "", llama.tokens(vocab), (int) llama.context(ctx), "exact"});
        }
        const auto found = requests.find(sampler);
        return found != requests.end() ? found->second : Request{"unknown", 1.0f};
    }

    // Best candidates of a row at the request's temperature, and the probability of `token` (if it is one).
    Row row(const float * logits, float temperature, int32_t token, float & p) const {
        const int n = llama.tokens(vocab);
        const float scale = temperature > 0.0f ? 1.0f / temperature : 1.0f;  // at 0 those at 1 are reported
        const float best = *std::max_element(logits, logits + n);
        double sum = 0.0;
        Row heap;  // the smallest on top
        const auto smaller = [](const auto & a, const auto & b) { return a.second > b.second; };
        for (int i = 0; i < n; i++) {
            sum += std::exp((logits[i] - best) * scale);
            if (heap.size() < top) {
                heap.emplace_back(i, logits[i]);
                std::push_heap(heap.begin(), heap.end(), smaller);
            } else if (logits[i] > heap.front().second) {
                std::pop_heap(heap.begin(), heap.end(), smaller);
                heap.back() = {i, logits[i]};
                std::push_heap(heap.begin(), heap.end(), smaller);
            }
        }
        std::sort(heap.begin(), heap.end(), smaller);
        const auto prob = [&](float logit) { return (float) (std::exp((double) (logit - best) * scale) / sum); };
        for (auto & one : heap) {
            one.second = prob(one.second);
        }
        p = token >= 0 && token < n ? prob(logits[token]) : 0.0f;
        return heap;
    }

    // What the target says at every row, before the engine samples.
    Step before(const common_sampler * sampler, llama_context * ctx, const std::vector<int> & places, const llama_tokens & draft) {
        const Request found = request(sampler, ctx, !draft.empty());
        Step step;
        step.request = found.id;
        step.drafted.assign(draft.begin(), draft.end());
        for (size_t i = 0; i < places.size(); i++) {
            const float * logits = llama.logits(ctx, places[i]);  // waits for the backend
            if (i == 0) {
                std::lock_guard<std::mutex> lock(mutex);
                step.verify_us = target_began ? now_us() - target_began : 0;
                step.draft_us = draft_began && draft_began < target_began ? target_began - draft_began : 0;
                draft_began = 0;
            }
            if (logits == nullptr) {  // sampled on the backend: no rows
                step.rows.clear();
                step.p.clear();
                break;
            }
            float p = 0.0f;
            step.rows.push_back(row(logits, found.temperature, i < draft.size() ? draft[i] : -1, p));
            if (i < draft.size()) {
                step.p.push_back(p);
            }
        }
        return step;
    }

    void after(Step && step, std::vector<llama_token> committed, uint64_t began) {
        step.sample_us = now_us() - began;
        step.committed.assign(committed.begin(), committed.end());
        // a draft that ends the answer is accepted, and the engine samples nothing after it
        sender.put(std::move(step));
    }
};

Tap & tap() {
    static Tap * one = new Tap;  // its threads live as long as the process
    return *one;
}

thread_local bool is_inside = false;  // the wrapped functions call each other

struct Inside {
    Inside() { is_inside = true; }
    ~Inside() { is_inside = false; }
};

__attribute__((constructor)) void begin() { tap(); }

}  // namespace

std::vector<llama_token> common_sampler_sample_and_accept_n(common_sampler * sampler, llama_context * ctx, const std::vector<int> & places,
                                                            const llama_tokens & draft, bool grammar_first) {
    Tap & t = tap();
    if (!t.is_on || is_inside || !t.sender.has_readers()) {
        return t.accept(sampler, ctx, places, draft, grammar_first);
    }
    const Inside inside;
    Step step = t.before(sampler, ctx, places, draft);
    const uint64_t began = now_us();
    auto committed = t.accept(sampler, ctx, places, draft, grammar_first);
    t.after(std::move(step), committed, began);
    return committed;
}

std::vector<llama_token> common_sampler_sample_and_accept_n_rejection(common_sampler * sampler, llama_context * ctx, const std::vector<int> & places,
                                                                      const llama_tokens & draft,
                                                                      const std::vector<std::vector<llama_token_data>> & draft_q, bool grammar_first) {
    Tap & t = tap();
    if (!t.is_on || is_inside || !t.sender.has_readers()) {
        return t.accept_rejection(sampler, ctx, places, draft, draft_q, grammar_first);
    }
    const Inside inside;
    Step step = t.before(sampler, ctx, places, draft);
    for (size_t i = 0; i < draft.size() && i < draft_q.size(); i++) {
        const auto found = std::find_if(draft_q[i].begin(), draft_q[i].end(), [&](const auto & one) { return one.id == draft[i]; });
        step.q.push_back(found == draft_q[i].end() ? 0.0f : found->p);
    }
    const uint64_t began = now_us();
    auto committed = t.accept_rejection(sampler, ctx, places, draft, draft_q, grammar_first);
    t.after(std::move(step), committed, began);
    return committed;
}

// Steps without drafts, and the first token of an answer.
llama_token common_sampler_sample(common_sampler * sampler, llama_context * ctx, int place, bool grammar_first) {
    Tap & t = tap();
    bool is_request = t.is_on && !is_inside && t.sender.has_readers();
    if (is_request) {  // a drafter samples as well, from a context of its own
        std::lock_guard<std::mutex> lock(t.mutex);
        is_request = t.requests.count(sampler) > 0 && (t.target == nullptr || t.target == ctx);
    }
    if (!is_request) {
        return t.sample(sampler, ctx, place, grammar_first);
    }
    const Inside inside;
    Step step = t.before(sampler, ctx, {place}, {});
    const uint64_t began = now_us();
    const llama_token id = t.sample(sampler, ctx, place, grammar_first);
    t.after(std::move(step), {id}, began);
    return id;
}

// A request begins: the server makes a sampler for each.
common_sampler * common_sampler_init(const llama_model * model, common_params_sampling & params) {
    Tap & t = tap();
    common_sampler * sampler = t.init(model, params);
    if (t.is_on && sampler != nullptr) {
        std::lock_guard<std::mutex> lock(t.mutex);
        t.requests[sampler] = {"request-" + std::to_string(++t.count), params.temp};
    }
    return sampler;
}

void common_sampler_free(common_sampler * sampler) {
    Tap & t = tap();
    if (t.is_on) {
        std::lock_guard<std::mutex> lock(t.mutex);
        t.requests.erase(sampler);
    }
    t.release(sampler);
}

// A pass begins, of the server through llama_process, of a drafter through either function.
extern "C" int32_t llama_process(llama_context * ctx, llama_process_type type, llama_batch_ext * batch) {
    tap().pass_begins(ctx);
    return tap().process(ctx, type, batch);
}

extern "C" int32_t llama_decode(llama_context * ctx, llama_batch batch) {
    tap().pass_begins(ctx);
    return tap().decode(ctx, batch);
}
