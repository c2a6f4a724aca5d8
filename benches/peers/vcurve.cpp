// Measures T(m): llama.cpp's time for one decode of m tokens with the logits of all of them.
//
// In such a pass, speculative decoding checks m - 1 drafted tokens. Each round fills the cache with ctx
// tokens, then times every m once and truncates the cache to ctx tokens after each (recurrent states
// are put back from a copy), so that a slow moment of the machine affects all m. Before each timed decode, one of the same m runs untimed:
// llama.cpp builds its graph again when the batch changes its size (about a tenth of T(1)) and
// reuses it while the size stays the same, as it does in use.
// The first round is a warm-up, which the reader drops. Every round is one line of JSON:
//
//   {"round":0,"prefill_us":…,"decode_us":{"1":…,"2":…,…}}
//
// Usage: vcurve MODEL.gguf THREADS CTX ROUNDS
//        vcurve --system-info

#include "ggml-cpu.h"
#include "ggml.h"
#include "llama.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::array<int, 9> widths = {1, 2, 3, 4, 5, 6, 8, 12, 16};

// llama.cpp's objects with their destructors, so that every exit frees them.
template <auto Free> struct Deleter {
    template <typename T> void operator()(T *object) const { Free(object); }
};
using Model = std::unique_ptr<llama_model, Deleter<llama_model_free>>;
using Context = std::unique_ptr<llama_context, Deleter<llama_free>>;
using Threads = std::unique_ptr<ggml_threadpool, Deleter<ggml_threadpool_free>>;

// A batch of consecutive tokens of one sequence.
class Batch {
public:
    explicit Batch(int capacity) : batch_(llama_batch_init(capacity, 0, 1)) {}
    ~Batch() { llama_batch_free(batch_); }
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;

    // Sets `count` of `tokens`, beginning with `first`, which is also their position.
    llama_batch fill(const std::vector<llama_token> &tokens, int first, int count, bool all_logits) {
        batch_.n_tokens = count;
        for (int i = 0; i < count; i++) {
            batch_.token[i] = tokens.at(static_cast<std::size_t>(first + i));
            batch_.pos[i] = first + i;
            batch_.n_seq_id[i] = 1;
            batch_.seq_id[i][0] = 0;
            batch_.logits[i] = all_logits || i == count - 1;
        }
        return batch_;
    }

private:
    llama_batch batch_;
};

// Microseconds until the logits of the batch's last token can be read.
double time_decode(llama_context *context, llama_batch batch) {
    const auto started = std::chrono::steady_clock::now();
    if (llama_decode(context, batch) != 0) {
        throw std::runtime_error("llama_decode failed");
    }
    llama_synchronize(context);
    if (llama_get_logits_ith(context, batch.n_tokens - 1) == nullptr) {
        throw std::runtime_error("no logits");
    }
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - started).count();
}

// Removes the cached tokens from position `len` on; false where recurrent layers keep only their last state.
bool truncate(llama_context *context, int len) {
    return llama_memory_seq_rm(llama_get_memory(context), 0, len, -1);
}

// The cache after a prompt of `len` tokens, to go back to after each pass.
class Mark {
public:
    Mark(llama_context *context, int len) : context_(context), len_(len) {
        saved_.resize(llama_state_seq_get_size(context, 0));
        saved_.resize(llama_state_seq_get_data(context, saved_.data(), saved_.size(), 0));
    }

    // Truncates, or puts the whole state back where that is not possible.
    void restore() const {
        if (truncate(context_, len_)) {
            return;
        }
        if (!truncate(context_, 0) || llama_state_seq_set_data(context_, saved_.data(), saved_.size(), 0) == 0) {
            throw std::runtime_error("the cache cannot be restored");
        }
    }

private:
    llama_context *context_;
    int len_;
    std::vector<std::uint8_t> saved_;
};

int positive(const char *text) {
    const int number = std::atoi(text);
    if (number < 1) {
        throw std::runtime_error(std::string("not a positive number: ") + text);
    }
    return number;
}

void run(const char *path, int threads, int ctx, int rounds) {
    const int most = *std::max_element(widths.begin(), widths.end());

    const Model model(llama_model_load_from_file(path, llama_model_default_params()));
    if (!model) {
        throw std::runtime_error(std::string("cannot load ") + path);
    }

    // The pool outlives the context that computes with it, so it is declared first.
    ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    const Threads workers(ggml_threadpool_new(&pool));

    // Defaults otherwise: f16 cache, flash attention where llama.cpp finds that it helps.
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(ctx + most);
    params.n_batch = static_cast<std::uint32_t>(std::max(ctx, most));
    params.n_threads = threads;
    params.n_threads_batch = threads;
    const Context context(llama_init_from_model(model.get(), params));
    if (!context || !workers) {
        throw std::runtime_error("cannot set up the computation");
    }
    // One pool for all passes, as llama.cpp's own programs do; else each pass would make one.
    llama_attach_threadpool(context.get(), workers.get(), nullptr);

    // The very tokens that draftscope times its passes with.
    const auto vocab = static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
    std::vector<llama_token> tokens;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(ctx + most); i++) {
        tokens.push_back(static_cast<llama_token>((i * 7919 + 13) % vocab));
    }

    Batch batch(std::max(ctx, most));
    for (int round = 0; round < rounds; round++) {
        if (!truncate(context.get(), 0)) {
            throw std::runtime_error("the cache cannot be emptied");
        }
        const double prefill = time_decode(context.get(), batch.fill(tokens, 0, ctx, false));
        std::printf("{\"round\":%d,\"prefill_us\":%.1f,\"decode_us\":{", round, prefill);
        const Mark mark(context.get(), ctx);
        const char *separator = "";
        for (const int m : widths) {
            double took = 0;
            for (int pass = 0; pass < 2; pass++) { // the last one counts
                took = time_decode(context.get(), batch.fill(tokens, ctx, m, true));
                mark.restore();
            }
            std::printf("%s\"%d\":%.1f", separator, m, took);
            separator = ",";
        }
        std::printf("}}\n");
        std::fflush(stdout);
    }
}

// Errors only: its account of the model would drown the figures.
void log_errors(ggml_log_level level, const char *text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

} // namespace

int main(int argc, char **argv) {
    llama_log_set(log_errors, nullptr);
    llama_backend_init();
    int status = EXIT_SUCCESS;
    try {
        if (argc == 2 && std::string(argv[1]) == "--system-info") {
            std::printf("ggml %s, %s\n", ggml_version(), llama_print_system_info());
        } else if (argc == 5) {
            run(argv[1], positive(argv[2]), positive(argv[3]), positive(argv[4]));
        } else {
            std::fprintf(stderr, "usage: %s MODEL.gguf THREADS CTX ROUNDS | --system-info\n", argv[0]);
            status = 2;
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "vcurve: %s\n", error.what());
        status = EXIT_FAILURE;
    }
    llama_backend_free();
    return status;
}
