"""Small models of the families that users bring."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, *, bias):
        super().__init__()
        self.hidden = nn.Linear(6, 8, bias=bias)
        self.out = nn.Linear(8, 3, bias=bias)

    def forward(self, x):
        return self.out(F.relu(self.hidden(x)))


class ConvNet(nn.Module):
    """AlexNet's and VGG's pieces: in-place ReLU, pooling, dropout, flatten."""

    def __init__(self, *, bias, width=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=bias),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1, bias=bias),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(),
            nn.Linear(4 * width, 8, bias=bias),
            nn.ReLU(inplace=True),
            nn.Linear(8, 5, bias=bias),
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Bottleneck(nn.Module):
    def __init__(self, width, norm):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = norm(width)
        self.conv3 = nn.Conv2d(width, width, 1, bias=False)
        self.bn3 = norm(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Three convolutions per block: ResNet-50 has 16 blocks, -152 has 50; Fixup has no norm."""

    def __init__(self, blocks, norm=nn.BatchNorm2d, width=4, *, bias=True):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.bn = norm(width)
        self.layers = nn.Sequential(*(Bottleneck(width, norm) for _ in range(blocks)))
        self.fc = nn.Linear(width, 5, bias=bias)

    def forward(self, x):
        return self.fc(self.layers(F.relu(self.bn(self.stem(x)))).mean((2, 3)))


class BiasFreeDenoiser(nn.Module):
    """DnCNN without biases; its BatchNorm divides by a running scale only."""

    def __init__(self, depth=3, width=4):
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(depth))
        self.scale = nn.ParameterList(torch.rand(1, width, 1, 1) + 0.5 for _ in range(depth))
        self.register_buffer("running", torch.rand(depth, width) + 0.5)
        self.last = nn.Conv2d(width, 1, 3, padding=1, bias=False)

    def forward(self, x):
        y = F.relu(self.first(x))
        for i, (conv, scale) in enumerate(zip(self.middle, self.scale, strict=True)):
            y = F.relu(conv(y) * scale / torch.sqrt(self.running[i] + 1e-5)[None, :, None, None])
        return x - self.last(y)


class Attention(nn.Module):
    def __init__(self, width, *, kind):
        super().__init__()
        self.kind = kind
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.kind == "qk-norm":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.kind == "relu":
            return self.proj(F.relu(q @ k.transpose(-2, -1)) @ v)
        return self.proj(F.scaled_dot_product_attention(q, k, v))


class Transformer(nn.Module):
    def __init__(self, *, kind, width=8, depth=2, residual=True):
        super().__init__()
        self.blocks = nn.ModuleList(Attention(width, kind=kind) for _ in range(depth))
        self.mlps = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.residual = residual
        self.head = nn.Linear(width, 3, bias=False)

    def forward(self, x):
        for block, mlp in zip(self.blocks, self.mlps, strict=True):
            x = x + block(x) if self.residual else block(x)
            x = F.relu(mlp(x))
        return self.head(x.mean(1))


class Encoder(nn.Module):
    """PyTorch's own encoder layer, with everything that breaks homogeneity."""

    def __init__(self, width=8):
        super().__init__()
        self.position = nn.Parameter(torch.randn(1, 5, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, activation="gelu", batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.layer(x + self.position).mean(1))


class Polynomial(nn.Module):
    """Degree 2: a bilinear layer."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 8, bias=False)
        self.b = nn.Linear(6, 8, bias=False)
        self.out = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        return self.out(self.a(x) * self.b(x))


class Lifted(nn.Module):
    """ρ(x)·f(x/ρ(x)), exact also at x = 0."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        rho = torch.linalg.vector_norm(x.flatten(1), dim=1)
        shape = (-1, *[1] * (x.dim() - 1))
        divisor = rho.masked_fill(rho == 0, float("inf")).view(shape)
        return rho[:, None] * self.inner(x / divisor)
