// Writes llama.cpp's logits at every position of some texts, decoded token by token.
//
// Reads one text per line from standard input, as token ids separated by blanks, and writes the logits
// of all positions to standard output: f32 in this machine's order, one row of the vocabulary each.
//
// Usage: logits MODEL.gguf THREADS < TEXTS > LOGITS

#include "llama.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// llama.cpp's objects with their destructors, so that every exit frees them.
template <auto Free> struct Deleter {
    template <typename T> void operator()(T *object) const { Free(object); }
};
using Model = std::unique_ptr<llama_model, Deleter<llama_model_free>>;
using Context = std::unique_ptr<llama_context, Deleter<llama_free>>;

std::vector<llama_token> parse(const std::string &line) {
    std::istringstream words(line);
    std::vector<llama_token> tokens;
    for (llama_token token; words >> token;) {
        tokens.push_back(token);
    }
    return tokens;
}

void run(const char *path, int threads) {
    const Model model(llama_model_load_from_file(path, llama_model_default_params()));
    if (!model) {
        throw std::runtime_error(std::string("cannot load ") + path);
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 2048;
    params.n_threads = threads;
    const Context context(llama_init_from_model(model.get(), params));
    if (!context) {
        throw std::runtime_error("cannot set up the computation");
    }
    const auto vocab = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
    for (std::string line; std::getline(std::cin, line);) {
        llama_memory_clear(llama_get_memory(context.get()), true);
        for (llama_token token : parse(line)) {
            if (llama_decode(context.get(), llama_batch_get_one(&token, 1)) != 0) {
                throw std::runtime_error("llama_decode failed");
            }
            if (std::fwrite(llama_get_logits(context.get()), sizeof(float), vocab, stdout) != vocab) {
                throw std::runtime_error("cannot write the logits");
            }
        }
    }
}

void log_errors(ggml_log_level level, const char *text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s MODEL.gguf THREADS < TEXTS > LOGITS\n", argv[0]);
        return 2;
    }
    llama_log_set(log_errors, nullptr);
    llama_backend_init();
    int status = EXIT_SUCCESS;
    try {
        run(argv[1], std::max(1, std::atoi(argv[2])));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "logits: %s\n", error.what());
        status = EXIT_FAILURE;
    }
    llama_backend_free();
    return status;
}
